"""An event loop for flows: it runs what is ready and returns when nothing is, without waiting for anything.

A flow only awaits its own calls, so that "nothing is ready" means that it is suspended. A timer is a recorded sleep,
and the time is that of the record. Threads and sockets are refused, because their results would not be the same in a
replay. `replay.py` runs it, inside a handler's loop.
"""

from __future__ import annotations

import asyncio
from asyncio import events, tasks
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from typing import Any, NoReturn

from stepkeep.definition.bounds import MILLISECOND
from stepkeep.kernel.definition import SECOND
from stepkeep.worker.answers import StepError
from stepkeep.worker.flows.signatures import CallFuture

MOST_TURNS = 1_000_000
"""How many callbacks a flow runs before it makes a call or ends."""

MOST_TURNS_OF_END = 10_000
"""How many callbacks a flow that was dropped runs to end."""

IN_A_STEP = "Make the call in a step: `await ctx.step(...)`"


class FlowLoop(asyncio.AbstractEventLoop):
    """The part of an event loop that tasks, futures, `gather` and `timeout` use.

    `sleep` makes a recorded sleep of so many microseconds, `clock` tells the time of the record in microseconds.
    """

    def __init__(self, sleep: Callable[[int], CallFuture[None]], clock: Callable[[], int]) -> None:
        self._ready: deque[asyncio.Handle] = deque()
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._sleep, self._clock = sleep, clock

    def cancel_tasks(self) -> None:
        """Cancel the tasks that have not ended, in the order in which they began."""
        for task in list(self._tasks):
            task.cancel()

    def end(self) -> None:
        """Cancel what still waits, and run it to its end, so far as it has one.

        Left to the collector of garbage, its cleanup would run on any loop, and that of anyio would never end there.
        """
        self.cancel_tasks()
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
        task = asyncio.Task(_awaited(coro) if asyncio.isfuture(coro) else coro, loop=self, **options)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
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

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Call it after a recorded sleep, which ends when the handle is cancelled."""
        lasts = round(delay * SECOND)
        if lasts <= 0:
            return self.call_soon(callback, *args, context=context)
        timer = _Timer(self.time() + delay, callback, args, self, context)
        timer.sleep = self._sleep(max(lasts, MILLISECOND))
        timer.sleep.add_done_callback(lambda slept: None if slept.cancelled() or timer.cancelled() else timer._run())
        return timer

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_later(when - self.time(), callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing: its sleep is cancelled, and no list of timers is kept."""

    def time(self) -> float:
        """When the last end of a call that the flow was given was recorded, in seconds."""
        return self._clock() / SECOND

    def run_in_executor(self, *given: Any, **options: Any) -> NoReturn:  # type: ignore[override]
        raise refusal(f"uses a thread. {IN_A_STEP}")

    def call_soon_threadsafe(self, *given: Any, **options: Any) -> NoReturn:  # type: ignore[override]
        raise refusal(f"is called from a thread. {IN_A_STEP}")


def _refused(what: str) -> Callable[..., NoReturn]:
    def refuse(self: FlowLoop, *given: Any, **options: Any) -> NoReturn:
        raise refusal(f"uses {what}, which differs in each replay. {IN_A_STEP}")

    return refuse


OUTSIDE = {
    "a socket": (
        *("create_connection", "create_server", "create_unix_connection", "create_unix_server", "sock_accept"),
        *("create_datagram_endpoint", "sock_connect", "sock_recv", "sock_recv_into", "sock_sendall", "sock_sendfile"),
        *("connect_accepted_socket", "start_tls", "sendfile", "getaddrinfo", "getnameinfo"),
    ),
    "a program": ("subprocess_exec", "subprocess_shell"),
    "a file": ("add_reader", "add_writer", "connect_read_pipe", "connect_write_pipe"),
    "a signal": ("add_signal_handler", "remove_signal_handler"),
}
"""What a flow cannot use itself, and the methods of a loop for it."""
for _what, _names in OUTSIDE.items():
    for _name in _names:
        setattr(FlowLoop, _name, _refused(_what))


async def _awaited(future: Awaitable[Any]) -> Any:
    """A coroutine for a task that is made of a call."""
    return await future


class _Timer(asyncio.TimerHandle):
    """A timer whose time is a recorded sleep."""

    __slots__ = ("sleep",)

    sleep: CallFuture[None]

    def cancel(self) -> None:
        if not self.cancelled():
            self.sleep.cancel()
        super().cancel()


def refusal(said: str) -> StepError:
    """Why a flow cannot go on like this; another attempt would not change that."""
    return StepError(f"the flow {said}.", category="validation", final=True)
