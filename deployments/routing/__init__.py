"""Which replica a request goes to: what a router sees of it, its books, and its place in Serve."""
