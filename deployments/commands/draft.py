"""`paceline draft eval`: what a drafter is worth for a target, measured on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from deployments.commands.numbers import real_option, whole_numbers
from deployments.commands.options import Compile, Device, Dtype

if TYPE_CHECKING:
    from engine.config import EngineConfig
    from engine.evaluate.draft import Evaluation

draft_app = typer.Typer(help="Judge draft models.", no_args_is_help=True)


@draft_app.callback()
def root() -> None:
    """Keeps `eval` a word of its own while it is the only one."""


@draft_app.command("eval")
def evaluate_draft(
    target: Annotated[
        str, typer.Option(help="Model that is served: a name, a folder or a hub name.")
    ],
    prompts: Annotated[
        list[Path],
        typer.Option(help='JSONL with "turns" (a chat) or "prompt" (a text to go on with).'),
    ],
    draft: Annotated[str | None, typer.Option(help="Draft model, named in the same ways.")] = None,
    drafter: Annotated[
        Literal["ngram", "model", "cascade"] | None,
        typer.Option(help="Who drafts [default: model with --draft, else ngram]."),
    ] = None,
    batch_sizes: Annotated[str, typer.Option(help="Sequences at once.")] = "1,2,4,8,16",
    lengths: Annotated[str, typer.Option(help="Draft lengths beside 0.")] = "1,2,3,4,6,8",
    new_tokens: Annotated[int, typer.Option(min=8, help="Tokens of each answer.")] = 64,
    temperature: Annotated[float, real_option(min=0.0, max=2.0, help="0 is greedy.")] = 0.0,
    max_prompts: Annotated[int, typer.Option(min=1, help="Of all files together.")] = 160,
    dtype: Dtype = "auto",
    device: Device = "auto",
    compile_forward: Compile = True,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the results here.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the results here, as PNG.")] = None,
) -> None:
    """Measure acceptance by position, cost by batch size, and the speed-up that comes of them.

    Projected is what acceptance and cost promise for the best length; measured is how much faster
    it decodes than without drafts, in turns, on other prompts. Ctrl-C shows what is measured.
    """
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from deployments.models.cache import default_home
    from engine.build import build_engine
    from engine.errors import ConfigError
    from engine.evaluate.draft import ACCEPTANCE_BATCH, Evaluation, evaluate, num_runs
    from policy.table import SpeculationTable

    sizes = whole_numbers(batch_sizes, "--batch-sizes", 1, 1024)
    wanted = [0, *whole_numbers(lengths, "--lengths", 1, 16)]
    for path in (json_file, plot):
        if path is not None and not path.absolute().parent.is_dir():
            raise ConfigError(f"{path}: there is no folder {path.absolute().parent}")
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    config = _config(
        target,
        draft,
        drafter,
        dtype,
        device,
        max_num_seqs=max(ACCEPTANCE_BATCH, *sizes),
        compile_folder=default_home() / "compiled" if compile_forward else None,
    )
    texts = _prompts(prompts, config.model, max_prompts)
    engine = build_engine(
        config,
        SpeculationTable(0, ()),
        lambda stage: console.print(f"{stage} ...", markup=False),
    )
    evaluation = Evaluation()
    columns = (*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(TextColumn("{task.fields[now]:<32}"), *columns, console=console) as bar:
        task = bar.add_task("measuring", total=num_runs(len(texts), sizes, wanted), now="")

        def report(what: str) -> None:
            bar.update(task, advance=1, now=what)

        try:
            evaluate(
                engine,
                texts,
                batch_sizes=sizes,
                lengths=wanted,
                new_tokens=new_tokens,
                temperature=temperature,
                report=report,
                result=evaluation,
            )
        except KeyboardInterrupt:
            console.print("Stopped; what was measured so far follows.")
    document = {
        "target": config.model.name,
        "drafter": config.drafter.kind,
        "draft": None if config.drafter.model is None else config.drafter.model.name,
        "prompts": [path.name for path in prompts],
        "num_prompts": len(texts),
        "new_tokens": new_tokens,
        "temperature": temperature,
        **_as_json(evaluation),
    }
    _print(evaluation, document)
    if json_file is not None:
        from engine.files import write_json

        write_json(json_file, document, indent=1)
    if plot is not None:
        from engine.evaluate.plot import plot_evaluation

        plot_evaluation(evaluation, plot)


def _config(
    target: str,
    draft: str | None,
    drafter: Literal["ngram", "model", "cascade"] | None,
    dtype: Dtype,
    device: Device,
    **sizes: Any,
) -> "EngineConfig":
    from deployments.config import machine_device, machine_dtype
    from deployments.models.store import resolve_model
    from engine.config import DrafterConfig, EngineConfig
    from engine.errors import ConfigError
    from policy.table import MAX_DRAFT_LEN

    kind = drafter or ("ngram" if draft is None else "model")
    if (kind == "ngram") != (draft is None):
        raise ConfigError(
            f"--draft must name a model exactly when --drafter is model or cascade, got "
            f"{draft!r} with {kind!r}"
        )
    model = resolve_model(target, key="--target")
    where = machine_device(device, "--device")
    folder = None if draft is None else resolve_model(draft, key="--draft")
    return EngineConfig(
        model=model,
        drafter=DrafterConfig(kind=kind, model=folder),
        dtype=machine_dtype(dtype, where, model),
        device=where,
        max_draft_len=MAX_DRAFT_LEN,
        **sizes,
    )


def _prompts(paths: list[Path], folder: Path, most: int) -> list[list[int]]:
    """Spread over all files."""
    from engine.distill.sources import Chat, prompt_ids, read_prompts
    from engine.model import load_tokenizer

    tokenizer = load_tokenizer(folder)
    found = [source for path in paths for source in read_prompts(path)]
    some = [found[i * len(found) // min(most, len(found))] for i in range(min(most, len(found)))]
    return [
        prompt_ids(source.turns[:1], (), tokenizer)
        if isinstance(source, Chat)
        else tokenizer.encode(source.text)
        for source in some
    ]


def _as_json(evaluation: "Evaluation") -> dict[str, Any]:
    return {
        "complete": evaluation.complete,
        "rounds": evaluation.acceptance.rounds,
        "acceptance_by_position": [share.as_json() for share in evaluation.acceptance.by_position],
        "batches": [
            {
                "batch_size": batch.batch_size,
                "step_seconds": batch.step_seconds,
                "best_length": batch.best,
                "projected": batch.projected,
                "measured": batch.measured,
            }
            for batch in evaluation.batches
        ],
    }


def _print(evaluation: "Evaluation", document: dict[str, Any]) -> None:
    from statistics import median

    from rich.console import Console
    from rich.table import Table

    console = Console()
    how = "greedy" if document["temperature"] == 0 else f"temperature {document['temperature']}"
    accepted = Table(title=f"drafts kept, {document['num_prompts']} prompts, {how}")
    accepted.add_column("position", justify="right")
    accepted.add_column("kept with all before it (95 %, of drafts that long)")
    for position, share in enumerate(evaluation.acceptance.by_position, start=1):
        accepted.add_row(str(position), str(share))
    console.print(accepted)
    gains = Table(title="faster than without drafts, decoding alone")
    for column in (
        "batch",
        "step at 0, ms",
        "best length",
        "its step, ms",
        "projected",
        "measured",
    ):
        gains.add_column(column, justify="right")
    for batch in evaluation.batches:
        if not batch.measured:
            continue
        low, high = min(batch.measured), max(batch.measured)
        gains.add_row(
            str(batch.batch_size),
            f"{1e3 * batch.step_seconds[0]:.1f}",
            str(batch.best),
            f"{1e3 * batch.step_seconds[batch.best]:.1f}",
            f"{batch.projected:.2f}",
            f"{median(batch.measured):.2f} ({low:.2f} to {high:.2f})",
        )
    console.print(gains)
