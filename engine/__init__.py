"""Continuous batching with speculative decoding over a Hugging Face model. Knows nothing of Ray."""

from engine.request import FinishReason, GrammarSpec, Request, SamplingParams, TokenDelta

__all__ = ["FinishReason", "GrammarSpec", "Request", "SamplingParams", "TokenDelta"]
