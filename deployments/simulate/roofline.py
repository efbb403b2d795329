"""Seconds of a pass on GPUs, by the roofline (Williams, Waterman, Patterson 2009): the longer of
reading and computing, each at the share of the GPU's best that is assumed; and what comes on top.
"""

from deployments.simulate.hardware import BYTES_PER_VALUE, Assumptions, Gpu, Machine, Model


class Passes:
    """Of one model, sharded over `num_gpus`."""

    def __init__(self, model: Model, gpu: Gpu, num_gpus: int, assumed: Assumptions) -> None:
        bandwidth = num_gpus * gpu.bytes_per_s * assumed.bandwidth_share
        flops = num_gpus * gpu.flops * assumed.flops_share
        self._weights_s = model.weight_bytes / bandwidth
        self._read_s = model.kv_bytes_per_token / bandwidth
        """For a token of context."""
        self._compute_s = 2 * model.num_weights / flops
        """For a token."""
        # Queries times keys, and weights times values: each 2 for a head's value.
        self._attend_s = 4 * model.layers * model.heads * model.head_dim / flops
        """For a token and a token of its context."""
        self._fixed_s = model.layers * assumed.layer_s
        self._reduce_s = 0.0
        if num_gpus > 1:
            # A ring's two halves carry each value 2 (n - 1) / n times.
            carried = 2 * (num_gpus - 1) / num_gpus * model.hidden * BYTES_PER_VALUE
            per_token = carried / (gpu.link_bytes_per_s * assumed.link_share)
            self._reduce_s = 2 * model.layers * per_token
            self._fixed_s += 2 * model.layers * assumed.all_reduce_s

    def seconds(self, num_tokens: int, context: float, attended: float) -> float:
        """Of a pass over `num_tokens`. `context`: tokens whose KV is read; `attended`: pairs of a
        token and a token before it."""
        reading = self._weights_s + context * self._read_s
        computing = num_tokens * self._compute_s + attended * self._attend_s
        longer = reading if reading > computing else computing
        return self._fixed_s + longer + num_tokens * self._reduce_s


class RooflineCosts:
    """`PassCosts` of a machine. The draft model lies on one GPU, as rank 0 drafts alone."""

    def __init__(self, machine: Machine, draft: Model, assumed: Assumptions) -> None:
        self._step_s = assumed.step_s
        self._target = Passes(machine.target, machine.gpu, machine.num_gpus, assumed)
        self._draft = Passes(draft, machine.gpu, 1, assumed)

    def target_seconds(
        self, num_decoding: int, num_drafted: int, num_prompt: int, context: float
    ) -> float:
        num_tokens = num_decoding + num_drafted + num_prompt
        # Prompt tokens of a pass belong to few sequences; the mean context stands for theirs too.
        whole = (num_decoding or 1) * context
        return self._step_s + self._target.seconds(num_tokens, whole, num_tokens * context)

    def least_seconds(self, num_decoding: int) -> float:
        return self.target_seconds(num_decoding, 0, 0, 0.0)

    def draft_seconds(
        self, num_drafting: int, longest: int, num_behind: int, context: int
    ) -> float:
        first = num_drafting + num_behind
        known = context + num_behind
        each = known / num_drafting
        seconds = self._draft.seconds(first, known, first * each)
        if longest > 1:
            further = self._draft.seconds(num_drafting, known, num_drafting * each)
            seconds += (longest - 1) * further
        return seconds
