"""`paceline chat`: a conversation in the terminal with a running server."""

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from deployments.commands.numbers import real_option
from deployments.commands.options import ApiKey, bearer
from engine.errors import ConfigError

HELP = "/reset forgets the conversation, /exit or Ctrl-D leaves, Ctrl-C stops an answer."
CONNECT_TIMEOUT_S = 5.0
Messages = list[dict[str, str]]


class AnswerError(Exception):
    """The server refused the request, or broke off its answer."""


class ChatClient:
    """One server and the settings that each request carries."""

    def __init__(self, url: str, settings: dict[str, Any], api_key: str | None = None) -> None:
        import httpx  # here, so that --help comes at once

        self._transport_errors: tuple[type[Exception], ...] = (
            httpx.TransportError,
            httpx.InvalidURL,
        )
        self._url = url
        self._settings = settings
        timeout = httpx.Timeout(None, connect=CONNECT_TIMEOUT_S)
        try:
            self._http = httpx.Client(base_url=url, timeout=timeout, headers=bearer(api_key))
        except self._transport_errors as error:
            raise ConfigError(f"--url {url}: {error}") from None

    def close(self) -> None:
        self._http.close()

    def first_model(self) -> str:
        """The model that the server names first. Raises ConfigError when there is no server."""
        try:
            response = self._http.get("/v1/models", timeout=CONNECT_TIMEOUT_S)
            if response.status_code == 401:
                raise ConfigError(f"{self._url}: {_reason(response.content)}")
            response.raise_for_status()
            return str(response.json()["data"][0]["id"])
        except ConfigError:
            raise
        except Exception as error:
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise ConfigError(f"no Paceline server at {self._url}: {reason}") from None

    def answer(self, model: str, messages: Messages) -> Iterator[str]:
        """Text of the answer as it comes. Closing the iterator stops it on the server as well."""
        body = {"model": model, "messages": messages, "stream": True, **self._settings}
        try:
            # ASCII, so that even input that is no valid text arrives, and is refused there.
            content = json.dumps(body).encode("ascii")
            with self._http.stream("POST", "/v1/chat/completions", content=content) as response:
                if response.status_code != 200:
                    raise AnswerError(_reason(response.read()))
                for line in response.iter_lines():
                    if line.startswith("data: ") and line != "data: [DONE]":
                        yield _text(json.loads(line.removeprefix("data: ")))
        except self._transport_errors as error:
            raise AnswerError(f"the connection to {self._url} broke: {error}") from None


def chat(
    url: Annotated[str, typer.Option(help="Where the server answers.")] = "http://127.0.0.1:8000",
    model: Annotated[
        str | None, typer.Option(help="Model to ask; the first one served if left out.")
    ] = None,
    temperature: Annotated[
        float | None, real_option(help="0 always takes the likeliest token; the default is 1.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="New tokens of one answer at most.")
    ] = None,
    system: Annotated[str | None, typer.Option(help="Instructions that come first.")] = None,
    api_key: ApiKey = None,
) -> None:
    """Talk with the model in the terminal.

    /reset forgets the conversation, /exit or Ctrl-D leaves, Ctrl-C stops an answer. With a pipe
    as its input, every line is one message.
    """
    settings = {"temperature": temperature, "max_tokens": max_tokens}
    opening: Messages = [{"role": "system", "content": system}] if system else []
    is_terminal = sys.stdin.isatty()
    given = {key: value for key, value in settings.items() if value is not None}
    client = ChatClient(url, given, api_key)
    with contextlib.closing(client):
        served = client.first_model()
        if is_terminal:
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401  (gives `input` history and editing)
            print(f"{model or served} at {url}\n{HELP}")
        _converse(client, model or served, opening, is_terminal=is_terminal)


def _converse(client: ChatClient, model: str, opening: Messages, *, is_terminal: bool) -> None:
    messages = [*opening]
    has_failed = False
    while (said := _next_message(is_terminal=is_terminal)) is not None and said != "/exit":
        if said == "/reset":
            messages = [*opening]
            continue
        if not said:
            continue
        messages.append({"role": "user", "content": said})
        try:
            answer = _show_answer(client, model, messages)
        except AnswerError as error:
            print(f"paceline: error: {error}", file=sys.stderr)
            messages.pop()
            has_failed = True
            continue
        messages.append({"role": "assistant", "content": answer})
    if has_failed and not is_terminal:
        raise typer.Exit(1)


def _next_message(*, is_terminal: bool) -> str | None:
    """The next line, stripped; None at the end of the input."""
    while True:
        try:
            return input("> " if is_terminal else "").strip()
        except EOFError:
            if is_terminal:
                print()
            return None
        except KeyboardInterrupt:
            # At the prompt there is no answer to stop; a pipe has no prompt.
            if not is_terminal:
                raise
            print()


def _show_answer(client: ChatClient, model: str, messages: Messages) -> str:
    """Print the answer while it comes; what there is of it after Ctrl-C."""
    texts: list[str] = []
    with contextlib.closing(client.answer(model, messages)) as pieces:  # type: ignore[type-var]
        try:
            for text in pieces:
                texts.append(text)
                print(text, end="", flush=True)
        except KeyboardInterrupt:
            print(" [stopped]", end="")
        finally:
            print(flush=True)
    return "".join(texts)


def _text(chunk: dict[str, Any]) -> str:
    if "error" in chunk:
        raise AnswerError(str(chunk["error"]["message"]))
    return "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])


def _reason(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace") or "the server gave no reason"
