"""The service over HTTP: what it adds to the engine, and what it withstands."""
