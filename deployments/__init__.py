"""The Ray Serve application: configuration, OpenAI-compatible API, replica, command line."""
