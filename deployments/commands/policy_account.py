"""How `paceline policy explain` shows a table: which length, what it gains over none, and why."""

from typing import Any

from deployments.commands.policy_show import source_in_words


def print_account(explained: dict[str, Any]) -> None:
    """Each kind's table as GET /policy/explain has it, and under it the reason for each rung."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    for kind in explained["kinds"]:
        if len(explained["kinds"]) > 1:
            console.print(f"Replicas on {kind['kind']}:", markup=False)
        console.print(
            f"Policy [bold]{kind['mode']}[/bold], version {kind['version']}, "
            f"{source_in_words(kind['source'])}"
        )
        table = Table(box=box.SIMPLE)
        table.add_column("batch size")
        # At the first and the last batch size of a rung, where they differ.
        for heading in ("length", "tokens", "ms/token", "at length 0", "gain"):
            table.add_column(heading, justify="right")
        for rung in kind["rungs"]:
            table.add_row(*_row(rung))
        console.print(table)
        for rung in kind["rungs"]:
            console.print(f"{_sizes(rung)}: {rung['why']}", markup=False)
        if not kind["by_batch_size"]:
            continue
        console.print("\nTokens are those of a sequence in a round; all numbers are estimates.")


def _row(rung: dict[str, Any]) -> tuple[str, ...]:
    length = str(rung["draft_len"])
    if rung["modelled"] != rung["looked_up"]:
        length = f"{rung['looked_up']}, model {rung['modelled']}"

    def told(name: str, form: str, scale: float = 1.0) -> str:
        ends = [
            form.format(scale * end[name]) for end in (rung["at_first"], rung["at_last"]) if end
        ]
        return "–".join(dict.fromkeys(ends))

    per_token = told("seconds_per_token", "{:.2f}", 1e3)
    without = told("seconds_per_token_without", "{:.2f}", 1e3)
    ends = [end["speedup"] - 1 for end in (rung["at_first"], rung["at_last"]) if end]
    gains = ", ".join(dict.fromkeys(f"{gain:+.0%}" for gain in ends)) if rung["draft_len"] else ""
    return _sizes(rung), length, told("tokens_per_round", "{:.2f}"), per_token, without, gains


def _sizes(rung: dict[str, Any]) -> str:
    """The batch sizes of a rung.

    >>> _sizes({"first": 3, "last": 8}), _sizes({"first": 9, "last": None})
    ('3 to 8', '9 or more')
    """
    first, last = rung["first"], rung["last"]
    if last is None:
        return "any" if first == 1 else f"{first} or more"
    return str(first) if first == last else f"{first} to {last}"
