"""The live page: what the application does, in a browser."""
