"""Drafters: guess the next tokens of each sequence, cheaply, before the target verifies them."""
