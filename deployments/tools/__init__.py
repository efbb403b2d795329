"""Tool calls in chat: offered to the model as its template wants, and read out of its text."""
