"""Continuous batching with speculative decoding over a Hugging Face model. Knows nothing of Ray."""
