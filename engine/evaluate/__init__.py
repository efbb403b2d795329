"""What a drafter is worth: acceptance, cost, and the speed-up that follows and is measured."""
