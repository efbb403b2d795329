"""A request's way through the engine: prepared as a job, run, and read as its choices."""
