"""Which draft length to use at which batch size: the table, and the actor that publishes it."""
