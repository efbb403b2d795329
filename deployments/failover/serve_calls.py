"""Calls over Serve's handles, their failures told apart: ours, and a replica that is lost."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from deployments.failover.tries import TryFailed


async def stream(method: Any, *arguments: object) -> AsyncGenerator[Any, None]:
    """What a streaming method of a handle gives. Closing it cancels the call.

    Raises TryFailed, whatever Ray or Serve say that befell the replica."""
    response = method.remote(*arguments)
    has_ended = False
    try:
        while True:
            try:
                item = await anext(response)
            except StopAsyncIteration:
                has_ended = True
                return
            except asyncio.CancelledError:
                if is_cancelled():
                    raise
                raise TryFailed("the replica gave the call up") from None
            except Exception as error:  # an actor that died, a lost node, Serve itself
                raise TryFailed(told(error)) from error
            yield item
    finally:
        if not has_ended:
            response.cancel()


def is_cancelled() -> bool:
    """Whether it is this task that is to end. Ray raises the same when a call was cancelled at its
    other end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def told(error: BaseException) -> str:
    """In one line: Ray's errors go on with a table of all that it knows of the actor."""
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
