"""Falcon: its attention class picks an implementation by itself, so it gets one that asks ours."""

from typing import Any

from torch import Tensor
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.falcon.modeling_falcon import (
    FALCON_ATTENTION_CLASSES,
    FalconAttention,
    apply_rotary_pos_emb,
)

from engine.attention import ATTENTION_NAME


class InterfacedFalconAttention(FalconAttention):
    """Falcon's attention (one, several or all KV heads; never ALiBi) through AttentionInterface."""

    def forward(  # type: ignore[override]  # the layer calls it by these names alone
        self,
        hidden_states: Tensor,  # [1, N, hidden]
        *,
        attention_mask: Any,
        position_embeddings: tuple[Tensor, Tensor],
        **kwargs: Any,
    ) -> Any:
        name = self.config._attn_implementation
        if name == "eager":
            return super().forward(
                hidden_states,
                attention_mask=attention_mask,
                position_embeddings=position_embeddings,
                **kwargs,
            )
        fused = self.query_key_value(hidden_states)
        query, key, value = (part.transpose(1, 2) for part in self._split_heads(fused))
        # The new architecture has repeated every KV head for the queries that share it.
        repeats = key.shape[1] // self.num_kv_heads  # type: ignore[operator]  # never None here
        key, value = key[:, ::repeats], value[:, ::repeats]
        query, key = apply_rotary_pos_emb(query, key, *position_embeddings)  # type: ignore[no-untyped-call]
        attend = ALL_ATTENTION_FUNCTIONS[name]
        out, _ = attend(self, query, key, value, attention_mask, scaling=self.inv_norm_factor)
        return self.dense(out.flatten(2)), None


def register() -> None:
    """Make Falcon models that are built from now on use it; harmless when repeated."""
    FALCON_ATTENTION_CLASSES[ATTENTION_NAME] = InterfacedFalconAttention
