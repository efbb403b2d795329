"""Options that several commands have."""

from typing import Annotated, Literal

import typer

Dtype = Annotated[
    Literal["auto", "bfloat16", "float32", "float16"], typer.Option(help="Of the weights.")
]
Device = Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="Where to compute.")]
Compile = Annotated[
    bool, typer.Option("--compile/--no-compile", help="Compile the forward on a CPU.")
]
