"""One script per peer, run with that peer's Python. Only `ours.py` may import the engine."""
