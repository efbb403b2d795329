"""How fast a replica is at each batch size: by the policy's cost model, which knows batches that it
has not had yet; where nothing was calibrated, by the steps it has made."""

from typing import Any

from policy.board import Introduction
from policy.learner import Learner
from policy.stats import StatsWindow, batch_bucket, told_sizes
from policy.table import SpeculationTable

_NEWEST_SHARE = 0.3


class Pace:
    """Of one replica. All methods belong to one event loop."""

    def __init__(self, max_num_seqs: int, introduction: Introduction | None = None) -> None:
        self._sizes = told_sizes(max_num_seqs)
        self._learner: Learner | None = None
        self._measured: dict[int, float] = {}
        self._seconds_per_prompt_token = 0.0
        if introduction is None:
            return
        if introduction.learned is not None:
            self.learn(introduction.learned)
        if self._learner is None and introduction.calibration is not None:
            self._learner = Learner(
                max_batch=introduction.max_batch, max_draft_len=introduction.max_draft_len
            )
            self._learner.calibrate(introduction.calibration)

    def learn(self, learned: dict[str, Any]) -> None:
        """Take over what the policy actor has learned of this kind of replica; what is none is
        left."""
        try:
            learner = Learner.from_json(learned)
        except ValueError:
            return
        if learner.calibration is not None:
            self._learner = learner

    def observe(self, window: StatsWindow, prompt_tokens: int) -> None:
        """Steps that were made, and prompt tokens that were computed in some of them."""
        per_round = window.emitted_tokens / window.rounds if window.rounds else 1.0
        decoding_s = 0.0
        seconds: dict[int, float] = {}
        steps: dict[int, int] = {}
        for shape, sums in window.shapes.items():
            bucket = batch_bucket(shape.batch_size)
            decoding_s += sums.target_seconds
            seconds[bucket] = seconds.get(bucket, 0.0) + sums.target_seconds + sums.draft_seconds
            steps[bucket] = steps.get(bucket, 0) + sums.steps
        for bucket, total_s in seconds.items():
            each_s = total_s / steps[bucket] / max(1.0, per_round)
            before_s = self._measured.get(bucket, each_s)
            self._measured[bucket] = before_s + _NEWEST_SHARE * (each_s - before_s)
        if prompt_tokens:
            each_s = max(0.0, window.target_seconds - decoding_s) / prompt_tokens
            before_s = self._seconds_per_prompt_token or each_s
            self._seconds_per_prompt_token = before_s + _NEWEST_SHARE * (each_s - before_s)

    def seconds_per_token(self, table: SpeculationTable) -> tuple[tuple[int, float], ...]:
        """(batch size, seconds a token) with the table's draft lengths, by rising batch size."""
        learner = self._learner
        if learner is not None:
            found = [(size, learner.seconds_per_token(size, table)) for size in self._sizes]
            return tuple((size, each_s) for size, each_s in found if each_s is not None)
        return tuple(sorted((s, each_s) for s, each_s in self._measured.items() if each_s > 0))

    def speedup(self, batch_size: int, table: SpeculationTable) -> float | None:
        """Tokens a second with the table's lengths over those with length 0; None where nothing
        was measured."""
        return None if self._learner is None else self._learner.speedup(batch_size, table)

    def seconds_per_prompt_token(self) -> float:
        modelled = None if self._learner is None else self._learner.seconds_per_prompt_token()
        return self._seconds_per_prompt_token if modelled is None else modelled
