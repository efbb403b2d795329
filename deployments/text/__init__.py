"""Text and tokens: templates on the way in; detokenising and stop strings on the way out."""
