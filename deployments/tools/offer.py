"""What a request's tool fields come to: which functions the model may call, and how it is made to.

offer = tool_offer(request)          None: no tools are shown, and the reply is not parsed
offer.for_template()                 `tools` of the chat template
offer.grammar()                      for the sampling parameters; None: the model is free
offer.parser(family, name)           for the reply's text
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from deployments.json_values import show
from deployments.tools.families import Family
from deployments.tools.forced import forced_arguments_of, read_forced_calls
from deployments.tools.grammar import forced_grammar
from deployments.tools.parser import ToolCallParser
from deployments.tools.schemas import NamedToolChoice, Tool, ToolRequestFields
from engine.errors import RequestError
from engine.request import GrammarSpec


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """Tools that the model is shown, at least one."""

    tools: tuple[Tool, ...]
    choice: Literal["auto", "required"] | NamedToolChoice
    parallel: bool
    """Whether one reply may hold several calls."""

    def for_template(self) -> list[dict[str, Any]]:
        """As the argument `tools` of `apply_chat_template`."""
        return [tool.for_template() for tool in self.tools]

    def grammar(self) -> GrammarSpec | None:
        """What the reply must conform to. Raises RequestError for parameters that can't be."""
        if self.choice == "auto":
            return None
        return forced_grammar(self.tools, self.choice, self.parallel)

    def parser(self, family: Family, reply: str) -> ToolCallParser:
        """A parser for one reply, which has this name among all."""
        if isinstance(self.choice, NamedToolChoice):
            layout = forced_arguments_of(self.choice.name)
        elif self.choice == "required":
            layout = read_forced_calls
        else:
            layout = family.layout
        names = frozenset(tool.name for tool in self.tools)
        make_call_id = partial(family.make_call_id, reply)
        return ToolCallParser(layout, names, make_call_id, None if self.parallel else 1)


def tool_offer(fields: ToolRequestFields) -> ToolOffer | None:
    """Raises RequestError for fields that contradict each other."""
    tools = tuple(fields.tools or ())
    choice = fields.tool_choice or ("auto" if tools else "none")
    _check_names(tools)
    if isinstance(choice, NamedToolChoice):
        if choice.name not in {tool.name for tool in tools}:
            raise RequestError(
                "tool_choice",
                f"tool_choice must name a function of tools, got {show(choice.name)}",
            )
    elif choice == "required" and not tools:
        raise RequestError("tool_choice", 'tool_choice "required" needs tools')
    if choice == "none" or not tools:
        return None
    if choice == "auto":
        _check_not_strict(tools)
    return ToolOffer(tools, choice, parallel=fields.parallel_tool_calls is not False)


def _check_names(tools: tuple[Tool, ...]) -> None:
    seen: set[str] = set()
    for index, tool in enumerate(tools):
        if tool.name in seen:
            field = f"tools[{index}].function.name"
            raise RequestError(
                field, f"{field} must differ from the names before it, got {show(tool.name)}"
            )
        seen.add(tool.name)


def _check_not_strict(tools: tuple[Tool, ...]) -> None:
    for index, tool in enumerate(tools):
        if tool.function.strict:
            field = f"tools[{index}].function.strict"
            raise RequestError(
                field,
                f'{field} can be true only where tool_choice is "required" or names a function: '
                "a call that the model is free to make isn't held to the schema; got true",
            )
