"""An engine whose target and drafter are formulas on a virtual clock: for whatever asks what a
policy would do, without a model and in no time.

All of the engine's own code runs as it is. What a pass takes is a function of its shape, and the
clock is moved on by so much. What the target says at a place of a text, and whether a draft is
right there, are hashes of (seed, request, position): neither depends on the drafts, the batch or
the table, so that policies are compared on the same texts and the same luck.
"""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from random import Random

from engine.config import DrafterConfig, EngineConfig
from engine.core import Engine
from engine.grammar import GrammarCompiler
from engine.plan import NO_DRAFT, Draft, SeqSlice, SliceResult, StepPlan, StepResult
from policy.table import SpeculationTable

VOCAB_SIZE = 32_000
EOS = 0
"""Never said: a text ends at its `max_tokens`."""

TargetSeconds = Callable[[int, int, int, float], float]
"""Of a target pass, by sequences that decode, draft tokens of all of them, prompt tokens, and mean
context in tokens."""
DraftSeconds = Callable[[int, int], float]
"""Of drafting, by sequences that get a draft and the longest draft asked for."""
AcceptanceOf = Callable[[str, int], float]
"""How likely a draft token is right whose forerunners were, by request id and 0-based position in
the draft; asked at every draft, so that it may change with the clock."""

_LEAST_NOISE = 0.05


class VirtualClock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def __call__(self) -> float:
        return self._seconds

    def advance(self, seconds: float) -> None:
        """Raises ValueError for a step back."""
        if not seconds >= 0:
            raise ValueError(f"seconds must be 0 or more, got {seconds}")
        self._seconds += seconds

    def advance_to(self, at_s: float) -> None:
        """Raises ValueError for a step back."""
        if not at_s >= self._seconds:
            raise ValueError(f"at_s must be {self._seconds} or later, got {at_s}")
        self._seconds = at_s


class Fates:
    """What holds at each place of each text, whoever asks and when."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def token(self, request_id: str, position: int) -> int:
        """The target's token."""
        return 1 + self._hash("token", request_id, position) % (VOCAB_SIZE - 1)

    def luck(self, request_id: str, position: int) -> float:
        """Uniform in [0, 1): below the acceptance, a draft token is right here."""
        return self._hash("luck", request_id, position) / 2.0**64

    def start(self, request_id: str, position: int) -> float:
        """Uniform in [0, 1): below the share of drafts, one can begin here."""
        return self._hash("start", request_id, position) / 2.0**64

    def _hash(self, what: str, request_id: str, position: int) -> int:
        place = f"{self._seed} {what} {position} {request_id}".encode()
        return int.from_bytes(blake2b(place, digest_size=8).digest(), "little")


class SimulatedTarget:
    """An `Executor` that takes `seconds`, each pass more or less by a relative standard deviation
    of `noise`."""

    def __init__(
        self,
        clock: VirtualClock,
        seconds: TargetSeconds,
        fates: Fates,
        *,
        noise: float = 0.0,
        noise_seed: int = 0,
    ) -> None:
        self._clock = clock
        self._seconds = seconds
        self._fates = fates
        self._noise = noise
        self._random = Random(noise_seed)

    def execute(self, plan: StepPlan, drafts: Sequence[Draft]) -> StepResult:
        prefilling = plan.slices[plan.num_decoding :]
        seconds = self._seconds(
            len(plan.slices) - len(prefilling),
            sum([len(draft.token_ids) for draft in drafts]),
            sum([part.num_tokens for part in prefilling]),
            sum([part.start for part in plan.slices]) / len(plan.slices),
        )
        if self._noise:
            seconds *= max(_LEAST_NOISE, self._random.gauss(1.0, self._noise))
        self._clock.advance(seconds)
        slices = tuple(
            self._answer(part, draft) if part.samples else SliceResult()
            for part, draft in zip(plan.slices, drafts, strict=True)
        )
        return StepResult(slices, target_seconds=seconds, verify_seconds=0.0)

    def _answer(self, part: SeqSlice, draft: Draft) -> SliceResult:
        told = []
        for position, guess in enumerate((*draft.token_ids, None), start=part.end):
            told.append(self._fates.token(part.request_id, position))
            if guess != told[-1]:
                break
        return SliceResult(tuple(told))

    failure = None

    def close(self) -> None:
        pass


class SimulatedDrafter:
    """A `Drafter` that takes `seconds`, finds something to draft at a share `has_draft` of all
    places, and keeps no KV of its own."""

    def __init__(
        self,
        clock: VirtualClock,
        seconds: DraftSeconds,
        acceptance: AcceptanceOf,
        fates: Fates,
        *,
        has_draft: float = 1.0,
        foresight: int = 0,
    ) -> None:
        """`foresight`: above 0 all drafts are looked up in the text, and it is told of so many
        tokens how they go on."""
        self._clock = clock
        self._seconds = seconds
        self._acceptance = acceptance
        self._fates = fates
        self._has_draft = has_draft
        self._foresight = foresight

    def propose(self, slices: Sequence[SeqSlice]) -> list[Draft]:
        asked = [self._asked(part) for part in slices]
        lengths = [length for length in asked if length]
        if lengths:
            self._clock.advance(self._seconds(len(lengths), max(lengths)))
        return [
            self._draft(part, length) if length else NO_DRAFT
            for part, length in zip(slices, asked, strict=True)
        ]

    def _asked(self, part: SeqSlice) -> int:
        return part.lookup_len if self._foresight else part.draft_len

    def _draft(self, part: SeqSlice, draft_len: int) -> Draft:
        request_id, fates = part.request_id, self._fates
        if self._has_draft < 1.0 and fates.start(request_id, part.end) >= self._has_draft:
            return NO_DRAFT
        length, guesses = max(draft_len, self._foresight), []
        for index in range(length):
            position = part.end + index
            token = fates.token(request_id, position)
            if fates.luck(request_id, position) >= self._acceptance(request_id, index):
                # Any other, and what follows it is never looked at.
                guesses += [1 + token % (VOCAB_SIZE - 1)] * (length - index)
                break
            guesses.append(token)
        return Draft(
            tuple(guesses[:draft_len]),
            looked_up=self._foresight > 0,
            foreseen=tuple(guesses[draft_len:]),
        )


def simulated_engine(
    config: EngineConfig,
    clock: VirtualClock,
    *,
    target_seconds: TargetSeconds,
    draft_seconds: DraftSeconds,
    acceptance: AcceptanceOf,
    has_draft: float = 1.0,
    foresight: int = 0,
    noise: float = 0.0,
    seed: int = 0,
    num_blocks: int = 8192,
    max_model_len: int = 8192,
    table: SpeculationTable | None = None,
) -> Engine:
    """An engine on `clock`, without drafts at first unless `table` says otherwise. Of `config` the
    limits count: `simulated_config` makes one."""
    fates = Fates(seed)
    return Engine(
        config,
        executor=SimulatedTarget(clock, target_seconds, fates, noise=noise, noise_seed=seed),
        drafter=SimulatedDrafter(
            clock, draft_seconds, acceptance, fates, has_draft=has_draft, foresight=foresight
        ),
        num_blocks=config.num_blocks or num_blocks,
        max_model_len=config.max_model_len or max_model_len,
        vocab_size=VOCAB_SIZE,
        eos_token_ids=frozenset({EOS}),
        grammars=GrammarCompiler(config.model, VOCAB_SIZE, frozenset({EOS})),
        table=SpeculationTable(0, ()) if table is None else table,
        clock=clock,
    )


def simulated_config(*, max_num_seqs: int = 32, max_draft_len: int = 8) -> EngineConfig:
    """Of an engine without a model."""
    return EngineConfig(
        Path(),
        DrafterConfig(kind="none"),
        max_num_seqs=max_num_seqs,
        max_draft_len=max_draft_len,
        max_step_tokens=max(512, 2 * max_num_seqs),
    )
