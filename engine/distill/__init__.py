"""Distillation: a small draft model for any target, trained on what the target says."""
