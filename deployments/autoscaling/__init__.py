"""How many replicas: what each says of its load, the rule, and its place in Ray Serve."""
