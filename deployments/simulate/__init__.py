"""Thousands of replicas on a virtual clock: engines, policy, router and autoscaling as they are,
formulas in the place of models."""
