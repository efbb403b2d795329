"""Grafana: a dashboard and alert rules made from the metrics' definitions, and brought there."""
