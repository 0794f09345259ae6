"""An event loop for flows: it runs what is ready and returns when nothing is, without waiting for anything.

A flow only awaits its own calls, so that "nothing is ready" means that it is suspended. Timers, threads and sockets are
refused, because their results would not be the same in a replay. `replay.py` runs it, inside a handler's loop.
"""

from __future__ import annotations

import asyncio
from asyncio import events, tasks
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from typing import Any, NoReturn
from weakref import WeakSet

from stepkeep.worker.answers import StepError

MOST_TURNS = 1_000_000
"""How many callbacks a flow runs before it makes a call or ends."""

MOST_TURNS_OF_END = 10_000
"""How many callbacks a flow that was dropped runs to end."""


class FlowLoop(asyncio.AbstractEventLoop):
    """The part of an event loop that tasks, futures and `gather` use."""

    def __init__(self) -> None:
        self._ready: deque[asyncio.Handle] = deque()
        self._tasks: WeakSet[asyncio.Task[Any]] = WeakSet()

    def end(self) -> None:
        """Cancel what still waits, and run it to its end, so far as it has one.

        Left to the collector of garbage, its cleanup would run on any loop, and that of anyio would never end there.
        """
        for task in list(self._tasks):
            task.cancel()
        with suppress(StepError):
            self.run_ready(MOST_TURNS_OF_END)

    def run_ready(self, most: int = MOST_TURNS) -> None:
        """Run until nothing is ready. Called from a task of another loop, or from no loop at all."""
        outer = events._get_running_loop()
        task = None if outer is None else asyncio.current_task(outer)
        if outer is not None and task is not None:
            tasks._leave_task(outer, task)
        events._set_running_loop(self)
        try:
            for _ in range(most):
                if not self._ready:
                    return
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
            raise refusal("does not come to rest: it awaits what is ready again and again, without a call")
        finally:
            events._set_running_loop(outer)
            if outer is not None and task is not None:
                tasks._enter_task(outer, task)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:  # type: ignore[override]
        task = asyncio.Task(coro, loop=self, **options)
        self._tasks.add(task)
        return task

    def get_task_factory(self) -> None:
        """None: anyio asks for it before it starts a task."""

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A task that nobody awaited has failed, or the flow was dropped with tasks in it: neither is a fault here."""

    def call_later(self, *given: Any, **options: Any) -> NoReturn:  # type: ignore[override]
        raise refusal("uses a timer of its own. Write `await ctx.sleep(...)`")

    def call_at(self, *given: Any, **options: Any) -> NoReturn:  # type: ignore[override]
        raise refusal("uses a timer of its own. Write `await ctx.sleep(...)`")

    def time(self) -> NoReturn:
        raise refusal("reads the clock of its loop, which differs in each replay. Read it in a step")

    def run_in_executor(self, *given: Any, **options: Any) -> NoReturn:  # type: ignore[override]
        raise refusal("uses a thread. Make the call in a step: `await ctx.step(...)`")

    def call_soon_threadsafe(self, *given: Any, **options: Any) -> NoReturn:  # type: ignore[override]
        raise refusal("is called from a thread. Make the call in a step: `await ctx.step(...)`")


def refusal(said: str) -> StepError:
    """Why a flow cannot go on like this; another attempt would not change that."""
    return StepError(f"the flow {said}.", category="validation", final=True)
