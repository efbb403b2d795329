"""What a replica tells Prometheus: definitions, export, the server's configuration and rules."""
