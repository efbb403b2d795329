"""What a calibration says: seconds, the table that follows, the paper's model fitted to them."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from engine.calibrate.kind import Kind
from policy.acceptance import Acceptance, AcceptanceTracker
from policy.cost import Calibration, CostCell, CostModel
from policy.optimize import Choice, Decision, decide, evaluate, rungs_of
from policy.paper import CostFit, best_length, fit_cost, fit_power_law


def assumed(share: float | None, max_len: int) -> Acceptance:
    """Of drafts whose every token is kept with probability `share` if its forerunners are; None:
    what an engine assumes before it has seen a draft."""
    if share is None:
        return AcceptanceTracker(max_len).pooled()
    survival = tuple(share**position for position in range(1, max_len + 1))
    kept = [(length, sum(survival[:length])) for length in range(1, max_len + 1)]
    return Acceptance(1.0, survival, *fit_power_law(kept), rounds=0.0)


@dataclass(frozen=True, slots=True)
class CalibrationReport:
    """Of one kind of engine."""

    kind: Kind
    calibration: Calibration
    acceptance: Acceptance
    max_batch: int
    max_len: int

    @property
    def _context(self) -> int:
        return self.calibration.contexts[0]

    def as_json(self) -> dict[str, Any]:
        fit = fit_cost(self.calibration, self._context)
        decision = self._decision()
        return {
            "kind": dict(self.kind.description),
            "key": self.kind.key,
            "calibration": self.calibration.as_json(),
            "acceptance": {
                "has_draft": self.acceptance.has_draft,
                "survival": list(self.acceptance.survival),
            },
            "context": self._context,
            "rungs": [list(rung) for rung in rungs_of(decision)],
            "choices": [asdict(choice) for choice in decision.choices],
            "fit": {
                **asdict(fit),
                "c": self.acceptance.c,
                "gamma": self.acceptance.gamma,
                "power_law_error": _power_law_error(self.acceptance),
                "best_lengths": {
                    str(size): self._paper_length(fit, size) for size in fit.draft_seconds
                },
            },
        }

    def show(self) -> None:
        """On standard output."""
        console = Console(highlight=False)
        for context in self.calibration.contexts:
            console.print(self._seconds(context))
        console.print(self._lengths())
        console.print(self._fit(), soft_wrap=True)

    def _decision(self) -> Decision:
        return decide(
            CostModel(self.calibration),
            lambda _: self.acceptance,
            max_batch=self.max_batch,
            max_len=self.max_len,
            context=self._context,
            previous=None,
            min_gain=0.0,
        )

    def _seconds(self, context: int) -> Table:
        cells = {
            (cell.batch_size, cell.draft_len): cell
            for cell in self.calibration.cells
            if cell.context == context
        }
        lengths = sorted({length for _, length in cells})
        table = Table(
            title=f"ms of a round, target+draft, by draft length; {context} tokens of context",
            box=box.SIMPLE_HEAD,
            padding=(0, 1),
        )
        for column in ("batch", *map(str, lengths)):
            table.add_column(column, justify="right", no_wrap=True)
        for size in sorted({size for size, _ in cells}):
            found = [cells.get((size, length)) for length in lengths]
            table.add_row(
                str(size),
                *("-" if cell is None else _milliseconds(cell) for cell in found),
            )
        return table

    def _lengths(self) -> Table:
        table = Table(title=f"what pays if {self._assumption()}", box=box.SIMPLE)
        for column in ("sequences", "length", "tokens/s", "over none", "the paper's model"):
            table.add_column(column, justify="right")
        fit = fit_cost(self.calibration, self._context)
        model = CostModel(self.calibration)
        decision = self._decision()
        for first, choices in _stretches(decision.choices):
            last = choices[-1]
            plain = evaluate(model, self.acceptance, last.batch_size, 0, self._context)
            known = last.batch_size in fit.draft_seconds
            table.add_row(
                str(first) if len(choices) == 1 else f"{first} to {last.batch_size}",
                str(last.draft_len),
                f"{last.tokens_per_second:.1f}",
                f"{last.tokens_per_second / plain.tokens_per_second:.2f}",
                f"{self._paper_length(fit, last.batch_size):.1f}" if known else "",
            )
        return table

    def _assumption(self) -> str:
        shares = ", ".join(f"{share:.2f}" for share in self.acceptance.survival[:3])
        more = ", ..." if len(self.acceptance.survival) > 3 else ""
        return f"drafts are kept up to each position with probability {shares}{more}"

    def _fit(self) -> str:
        fit = fit_cost(self.calibration, self._context)
        alphas = ", ".join(f"{size}: {1e3 * alpha:.2f}" for size, alpha in fit.alpha.items())
        drafts = ", ".join(f"{size}: {1e3 * t:.2f}" for size, t in fit.draft_seconds.items())
        law = self.acceptance
        return (
            "The paper's model, in ms and by sequences:\n"
            f"  t_L(b, s) = alpha_b s + beta   beta {1e3 * fit.beta:.1f}; alpha_b {alphas}\n"
            f"      relative error {fit.error:.0%}; with a beta for each batch size "
            f"{fit.error_by_batch:.0%}\n"
            f"  t_S(b)   {drafts}\n"
            f"  l(s) = c s^gamma   c {law.c:.3f}, gamma {law.gamma:.3f}; relative error "
            f"{_power_law_error(law):.1%}"
        )

    def _paper_length(self, fit: CostFit, batch_size: int) -> float:
        return best_length(
            fit.alpha_by_batch[batch_size],
            fit.beta_by_batch[batch_size],
            fit.draft_seconds[batch_size],
            self.acceptance.c,
            self.acceptance.gamma,
            self.max_len,
        )


def _milliseconds(cell: CostCell) -> str:
    parts = [cell.target_seconds, cell.draft_seconds][: 2 if cell.draft_len else 1]
    return "+".join(f"{1e3 * part:.{0 if part >= 0.01 else 1}f}" for part in parts)


def _stretches(choices: tuple[Choice, ...]) -> list[tuple[int, list[Choice]]]:
    """Batch sizes in a row with one length: the first, and the choices of all."""
    found: list[tuple[int, list[Choice]]] = []
    for choice in choices:
        if not found or found[-1][1][-1].draft_len != choice.draft_len:
            found.append((choice.batch_size, []))
        found[-1][1].append(choice)
    return found


def _power_law_error(acceptance: Acceptance) -> float:
    """Root of the mean square of the relative error over all lengths; 0 where nothing is kept."""
    kept = [
        (length, sum(acceptance.survival[:length]))
        for length in range(1, len(acceptance.survival) + 1)
    ]
    errors = [
        acceptance.c * length**acceptance.gamma / value - 1 for length, value in kept if value > 0
    ]
    return math.sqrt(sum(error**2 for error in errors) / len(errors)) if errors else 0.0
