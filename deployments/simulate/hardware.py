"""GPUs and models in figures, with their sources.

Bandwidths and arithmetic are the makers' own, for dense 16-bit products. What a kernel gets of
them, and what it takes to start one, are assumptions, the same for all, and named as such.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

BYTES_PER_VALUE = 2
"""Weights and KV in 16 bits."""


@dataclass(frozen=True, slots=True)
class Gpu:
    name: str
    memory_bytes: float
    bytes_per_s: float
    """Of its memory."""
    flops: float
    """A second, of dense 16-bit products; a multiplication and an addition are two."""
    link_bytes_per_s: float
    """To the other GPUs, in one direction."""
    source: str


A100 = Gpu(
    "A100-SXM4-80GB",
    memory_bytes=80e9,
    bytes_per_s=2039e9,
    flops=312e12,
    link_bytes_per_s=300e9,
    source="NVIDIA A100 Tensor Core GPU datasheet (2021): 2,039 GB/s, 312 TFLOPS BF16, NVLink "
    "600 GB/s both ways",
)
H100 = Gpu(
    "H100-SXM5-80GB",
    memory_bytes=80e9,
    bytes_per_s=3350e9,
    flops=989e12,
    link_bytes_per_s=450e9,
    source="NVIDIA H100 Tensor Core GPU datasheet (2023): 3.35 TB/s, 989 TFLOPS BF16 dense, NVLink "
    "900 GB/s both ways",
)


@dataclass(frozen=True, slots=True)
class Model:
    """A decoder of the Llama kind, by its config.json."""

    name: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    source: str
    ties_embeddings: bool = False
    """The head is the embedding, and lies in memory once."""

    @property
    def num_weights(self) -> int:
        """That a pass reads: all layers and the head, but single rows of the embedding alone."""
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        mlp = 3 * self.hidden * self.intermediate
        return self.layers * (attention + mlp) + self.hidden * self.vocab

    @property
    def kv_bytes_per_token(self) -> int:
        return 2 * self.layers * self.kv_heads * self.head_dim * BYTES_PER_VALUE

    @property
    def weight_bytes(self) -> int:
        """That a pass reads."""
        return self.num_weights * BYTES_PER_VALUE

    @property
    def memory_bytes(self) -> int:
        """That its weights fill: the whole embedding too."""
        embedding = 0 if self.ties_embeddings else self.hidden * self.vocab
        return self.weight_bytes + embedding * BYTES_PER_VALUE


MODELS: Mapping[str, Model] = MappingProxyType(
    {
        model.name: model
        for model in (
            Model("llama-2-7b", 32, 4096, 11008, 32, 32, 128, 32000, "meta-llama/Llama-2-7b-hf"),
            Model("llama-3-70b", 80, 8192, 28672, 64, 8, 128, 128256, "meta-llama/Llama-3.1-70B"),
            Model("llama-160m", 12, 768, 3072, 12, 12, 64, 32000, "JackFram/llama-160m"),
            Model(
                "llama-3-1b",
                16,
                2048,
                8192,
                32,
                8,
                64,
                128256,
                "meta-llama/Llama-3.2-1B",
                ties_embeddings=True,
            ),
            Model("llama-3-8b", 32, 4096, 14336, 32, 8, 128, 128256, "meta-llama/Llama-3.1-8B"),
        )
    }
)


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What a pass gets of a GPU's best. Not measured here: rough, and the same for all profiles."""

    bandwidth_share: float = 0.8
    """Of the memory's."""
    flops_share: float = 0.6
    link_share: float = 0.7
    layer_s: float = 15e-6
    """For each layer, to start its kernels: some ten of them in a captured graph."""
    all_reduce_s: float = 10e-6
    """For each, however little it carries; two a layer where there are several GPUs."""
    step_s: float = 1e-3
    """For each step, to plan it, choose tokens and do the books."""
    memory_share: float = 0.9
    """Of a GPU's memory, for weights and KV."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A replica's GPUs, its target, and the draft model that it has unless another is named."""

    gpu: Gpu
    num_gpus: int
    target: Model
    draft: Model
    max_model_len: int


MACHINES: Mapping[str, Machine] = MappingProxyType(
    {
        "a100-7b": Machine(A100, 1, MODELS["llama-2-7b"], MODELS["llama-160m"], 4096),
        "h100-70b-tp4": Machine(H100, 4, MODELS["llama-3-70b"], MODELS["llama-3-1b"], 16384),
    }
)
