"""`paceline distill`: a draft model for any target, from the target's own words."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from deployments.commands.numbers import real_option
from deployments.commands.options import Compile, Device, Dtype
from deployments.commands.terminal import INTERRUPTED, Terminal

if TYPE_CHECKING:
    from engine.distill.shares import Share
    from engine.distill.training import Step

_LINE_EVERY_S = 30.0


def distill(
    target: Annotated[
        str, typer.Option(help="Model to draft for: a name, a folder or a hub name.")
    ],
    out: Annotated[Path, typer.Option(help="Folder to make.")],
    prompts: Annotated[
        list[Path] | None,
        typer.Option(help='JSONL with "turns" (a chat) or "prompt" (a text to go on with).'),
    ] = None,
    text: Annotated[
        list[Path] | None, typer.Option(help="A text that the target is asked about.")
    ] = None,
    own_prompts: Annotated[
        int, typer.Option(help="How many prompts the target writes itself.")
    ] = 0,
    layers: Annotated[
        str, typer.Option(help="How many of the target's layers, or which: 2, or 0,29.")
    ] = "2",
    vocabulary: Annotated[
        int, typer.Option(help="Tokens that the draft may propose: those the target says most.")
    ] = 8192,
    minutes: Annotated[
        float | None,
        real_option(help="For all of it; without it, until all prompts are learned from."),
    ] = None,
    labels: Annotated[
        Literal["soft", "hard"],
        typer.Option(help="Learn the target's whole distribution, or its likeliest token."),
    ] = "soft",
    epochs: Annotated[int, typer.Option(help="How often each answer is learned from.")] = 3,
    max_answer: Annotated[int, typer.Option(help="Tokens of an answer at most.")] = 256,
    width: Annotated[int, typer.Option(help="Prompts that are answered at once.")] = 64,
    seed: Annotated[int, typer.Option(help="Of the order in which answers are learned from.")] = 0,
    dtype: Dtype = "auto",
    device: Device = "auto",
    compile_forward: Compile = True,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.")
    ] = False,
) -> None:
    """Make a small draft model for a target, on this machine.

    The target answers the prompts, and a few of its own layers, between its own embedding and
    head, learn to say the same. Ctrl-C stops; the same command goes on.
    """
    from deployments.config import machine_device, machine_dtype
    from deployments.models.cache import default_home
    from deployments.models.store import resolve_model
    from engine.distill.config import DistillationConfig, Interrupted
    from engine.distill.distillation import distil
    from engine.distill.training import TrainingSettings
    from engine.errors import ConfigError

    folder = resolve_model(target, key="--target").absolute()
    config = DistillationConfig(
        target=folder,
        out=out.expanduser(),
        prompts=tuple(prompts or ()),
        texts=tuple(text or ()),
        own_prompts=own_prompts,
        layers=_layers(layers),
        vocabulary=vocabulary,
        minutes=minutes,
        max_answer=max_answer,
        width=width,
        device=(where := machine_device(device, "--device")),
        dtype=machine_dtype(dtype, where, folder),
        compile_folder=default_home() / "compiled" if compile_forward else None,
        trust_remote_code=trust_remote_code,
        training=TrainingSettings(epochs=epochs, hard=labels == "hard", seed=seed),
    )
    watcher = _Watcher(
        line_every_s=_LINE_EVERY_S, on_stop="Stopping after this step; what is done is kept."
    )
    with watcher:
        try:
            done = distil(config, watcher)
        except Interrupted:
            watcher.say("Stopped. The same command goes on from here.")
            raise typer.Exit(INTERRUPTED) from None
        except OSError as error:
            raise ConfigError(
                f"--out {out}: can't be written: {error.strerror or error}"
            ) from error
    typer.echo(
        f"{done.folder} is ready. On held-out prompts its likeliest token was the target's at "
        f"{done.acceptance} places.\n"
        f"What it gains: paceline draft eval --target {target} --draft {out} --prompts ..."
    )


def _layers(text: str) -> int | tuple[int, ...]:
    """How many layers, or which.

    >>> _layers("2"), _layers("0,29")
    (2, (0, 29))
    """
    from engine.errors import ConfigError

    try:
        numbers = tuple(int(number) for number in text.split(","))
    except ValueError:
        raise ConfigError(
            f"--layers must be a number or numbers with commas between, got {text!r}"
        ) from None
    return numbers[0] if len(numbers) == 1 else numbers


class _Watcher(Terminal):
    """Watches a distillation."""

    def asking(self, done: int, total: int, num_labels: int) -> None:
        self.progress("asking the target", done / total, f"{num_labels:,} tokens")

    def training(self, step: "Step", acceptance: "Share") -> None:
        told = f"loss {step.loss:.3f}, held-out acceptance {acceptance.value:.1%}"
        self.progress("training", step.progress, f"step {step.number}, {told}")
