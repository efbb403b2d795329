"""Tokens in, tokens out: batched speculative decoding on one model, without Ray."""

from engine.request import FinishReason, GrammarSpec, Request, SamplingParams, TokenDelta

__all__ = ["FinishReason", "GrammarSpec", "Request", "SamplingParams", "TokenDelta"]
