"""Measurements. Each prints tables, ends with its goals, and writes one JSON with `--json`."""
