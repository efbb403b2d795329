"""`paceline bench`: the paper's experiments on this machine."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from deployments.commands.bench_traffic import trace, traffic
from deployments.commands.numbers import whole_numbers
from deployments.commands.options import Compile, Device, Dtype
from deployments.commands.terminal import INTERRUPTED, Terminal

if TYPE_CHECKING:
    from engine.config import EngineConfig

_LINE_EVERY_S = 10.0
_MOST_PROMPT_TOKENS = 512
"""Longer prompts lose their beginning."""

bench_app = typer.Typer(
    help="Measure as the paper does: a grid of batch sizes and draft lengths, traffic, traces.",
    no_args_is_help=True,
)
bench_app.command()(traffic)
bench_app.command()(trace)


@bench_app.command()
def characterize(
    out: Annotated[Path, typer.Option(help="Folder of the results; a run there goes on.")] = Path(
        "out/characterize"
    ),
    model: Annotated[str, typer.Option(help="A name, a folder or a hub name.")] = "smollm2-135m",
    drafter: Annotated[
        Literal["auto", "model", "cascade", "ngram"],
        typer.Option(help="Who drafts; auto: as `serve` would; model: as in the paper."),
    ] = "auto",
    draft: Annotated[
        str | None,
        typer.Option(help="Draft model [default: the one in the model's own folder]."),
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(help='JSONL with "turns" or "prompt" [default: 64 that come with Paceline].'),
    ] = None,
    batch_sizes: Annotated[str, typer.Option(help="Sequences at once.")] = "1,2,4,8,16,32",
    lengths: Annotated[str, typer.Option(help="Draft lengths; 0 comes by itself.")] = (
        "1,2,3,4,5,6,7,8"
    ),
    new_tokens: Annotated[int, typer.Option(min=8, help="Tokens of each answer.")] = 128,
    repeats: Annotated[int, typer.Option(min=1, help="Times through the grid.")] = 3,
    dtype: Dtype = "auto",
    device: Device = "auto",
    compile_forward: Compile = True,
    kv_cache_mb: Annotated[int, typer.Option(min=1, help="For all sequences at once.")] = 1024,
) -> None:
    """Measure time per token by batch size and draft length, and fit the paper's model to it.

    Writes characterize.json, characterize.md and pictures. Ctrl-C keeps what was measured, and the
    same command goes on from there.
    """
    from deployments.bench.characterize import Grid, measure, points_of
    from deployments.bench.characterize_report import CHARACTERIZE, write_report
    from deployments.bench.identity import drafter_settings, prompts_digest, weights_digest
    from deployments.bench.prompts import read_texts
    from deployments.bench.results import environment
    from deployments.bench.settle import settle
    from deployments.bench.work import Work
    from engine.build import build_engine
    from engine.distill.sources import prompt_ids
    from engine.model import load_tokenizer
    from policy.table import SpeculationTable

    sizes = whole_numbers(batch_sizes, "--batch-sizes", 1, 1024)
    grid = Grid(sizes, tuple(sorted({0, *whole_numbers(lengths, "--lengths", 1, 16)})), repeats)
    texts = read_texts(prompts)
    config = _engine_config(
        model,
        drafter,
        draft,
        {
            "dtype": dtype,
            "device": device,
            "compile": compile_forward,
            "kv_cache_mb": kv_cache_mb,
            "max_num_seqs": max(sizes),
            "max_draft_len": max(grid.lengths),
        },
    )
    plan: dict[str, Any] = {
        "benchmark": CHARACTERIZE,
        "model": config.model.name,
        "weights": weights_digest(config.model),
        "drafter": config.drafter.kind,
        "drafter_settings": drafter_settings(config.drafter),
        "draft": None if config.drafter.model is None else config.drafter.model.name,
        "dtype": config.dtype,
        "device": config.device,
        "kv_cache_mb": kv_cache_mb,
        "compiled": config.compile_folder is not None,
        "prompts": "Paceline's own" if prompts is None else prompts.name,
        "num_prompts": len(texts),
        "prompts_digest": prompts_digest(texts),
        "batch_sizes": list(sizes),
        "lengths": list(grid.lengths),
        "new_tokens": new_tokens,
        "repeats": repeats,
        "environment": environment(config.device),
    }
    work = Work(out, plan)
    terminal = Terminal(
        line_every_s=_LINE_EVERY_S, on_stop="Stopping after this cell; what was measured is kept."
    )
    is_whole = len(points_of(grid, work)) == len(grid.cells)
    if not is_whole:
        tokenizer = load_tokenizer(config.model)
        asked = [prompt_ids((text,), (), tokenizer)[-_MOST_PROMPT_TOKENS:] for text in texts]
        engine = build_engine(config, SpeculationTable(0, ()), terminal.stage)
        settle()
        try:
            with terminal:
                is_whole = measure(
                    engine,
                    asked,
                    grid,
                    new_tokens,
                    work,
                    lambda done, what: terminal.progress("measuring", done / len(grid.cells), what),
                    lambda: terminal.stopped,
                )
        finally:
            engine.close()
    if write_report(out, plan, points_of(grid, work), is_whole):
        typer.echo((out / f"{CHARACTERIZE}.md").read_text())
    else:
        typer.echo("No batch size has length 0 and another one measured yet.", err=True)
    if not is_whole:
        raise typer.Exit(INTERRUPTED)


@bench_app.command()
def compare(
    before: Annotated[Path, typer.Argument(metavar="A.json", help="Results of a run.")],
    after: Annotated[Path, typer.Argument(metavar="B.json", help="Those of another, like it.")],
    across_machines: Annotated[
        bool, typer.Option("--across-machines", help="Even if the hardware differs.")
    ] = False,
) -> None:
    """Show B over A, with the spread. Refuses runs that did not measure the same."""
    from deployments.bench.compare import compare as compared

    documents = [_read(path) for path in (before, after)]
    typer.echo(compared(documents[0], documents[1], across_machines=across_machines))


def _read(path: Path) -> dict[str, Any]:
    from engine.errors import ConfigError

    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: can't be read as JSON: {error}") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: holds no results of `paceline bench`")
    return document


def _engine_config(
    model: str, drafter: str, draft: str | None, engine: dict[str, Any]
) -> "EngineConfig":
    """As a replica would have it. Raises ConfigError."""
    from deployments.config import parse_config
    from deployments.models.catalog import DRAFT
    from deployments.models.store import resolve_model
    from engine.errors import ConfigError

    chosen: dict[str, Any] = {"kind": drafter}
    if drafter in ("model", "cascade"):
        own = resolve_model(model, key="--model") / DRAFT
        if draft is None and not own.is_dir():
            raise ConfigError(f"--draft: must name a draft model, as {model} has none of its own")
        chosen["model"] = draft or str(own)
    elif draft is not None:
        raise ConfigError(f"--draft is for --drafter model or cascade, got it with {drafter}")
    values = {"model": model, "drafter": chosen, "engine": engine}
    return parse_config(values, "options").engine_config()
