"""The event loop on which async handlers run, and what their lifespans opened on it.

It is a loop in a thread of its own, or the host program's loop. One engine or one worker owns it, so that a pool or a
client that a handler made stays usable. It knows no jobs: pools attach to it. A loop that breaks is replaced, and its
lifespans are opened again on the new one.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import selectors
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from types import CodeType
from typing import Any, Literal, Protocol

from stepkeep.definition import arguments
from stepkeep.definition.python.registry import Registry
from stepkeep.edges.safe_text import exception_text, inert_line, type_name
from stepkeep.kernel.errors import InvalidInput
from stepkeep.worker.forks import end_copy

log = logging.getLogger("stepkeep.worker")

CLOSE_SECONDS = 5.0

STOPS_TOLD_EVERY = 60.0
"""How often (seconds) a stopped loop is logged."""

Lifespan = Callable[[], Any]
"""An async generator function, or a function that returns an async context manager. It yields a mapping, or None."""


class Attached(Protocol):
    """A pool that uses the loop."""

    def loop_lost(self, why: str) -> None:
        """The loop broke; every job that had begun on it is lost. Called from the loop's thread."""
        ...


class Shared(Mapping[str, Any]):
    """What the lifespans of a worker gave to its handlers, by name."""

    __slots__ = ("_missing", "_values")

    def __init__(self, missing: str = "no lifespan of this worker gave it") -> None:
        self._values: dict[str, Any] = {}
        self._missing = missing

    def __getitem__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            known = f"; there are: {', '.join(self._values)}" if self._values else ""
            raise KeyError(f"nothing is shared under {name!r}: {self._missing}{known}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def fill(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)


class HandlerLoop:
    """A loop in a thread of its own, which starts on first use: many workers never need one."""

    def __init__(self, lifespans: Sequence[Lifespan] = ()) -> None:
        self.shared = Shared()
        self._lifespans = tuple(lifespans)
        self._pools: list[Attached] = []
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_over = False
        self._opened: Future[None] | None = None
        self._closing: asyncio.Event | None = None
        self._holding: asyncio.Task[None] | None = None
        self._stop_told_at = float("-inf")

    # -- for pools ---------------------------------------------------------------------------------------------------
    def attach(self, pool: Attached) -> None:
        self._pools.append(pool)

    def detach(self, pool: Attached) -> None:
        with suppress(ValueError):
            self._pools.remove(pool)

    @property
    def is_started(self) -> bool:
        return self._loop is not None

    @property
    def is_running_here(self) -> bool:
        """Whether this thread runs the loop, and must not wait for it."""
        return self._thread is threading.current_thread()

    def call(self, function: Callable[[], object]) -> None:
        """Call this on the loop. Raises OSError or RuntimeError if no loop can be started."""
        with self._lock:
            if self._loop is None or self._loop.is_closed():
                self._start()
            assert self._loop is not None
            self._loop.call_soon_threadsafe(function)

    def when_ready(self, function: Callable[[], object], refused: Callable[[str], object]) -> bool:
        """Whether what handlers share is open. If not, `function` is called on the loop once it is."""
        if not self._lifespans:
            return True
        opened = self._opened
        if opened is not None and opened.done() and opened.exception() is None:
            return True
        self._open().add_done_callback(lambda done: self._call_when_open(done, function, refused))
        return False

    def position(self, run: CodeType) -> str:
        """The position of the thread, for the log: the line of the handler that `run` awaits."""
        thread = self._thread
        frame = None if thread is None or thread.ident is None else sys._current_frames().get(thread.ident)
        if frame is None:
            return ""
        while frame.f_back is not None and frame.f_back.f_code is not run:
            if frame.f_back.f_code is _LIVE:
                return ""
            frame = frame.f_back
        return inert_line(f" ({frame.f_code.co_filename}:{frame.f_lineno}, in {frame.f_code.co_name})")

    # -- for owners --------------------------------------------------------------------------------------------------
    async def ready(self) -> None:
        """Open what handlers share, once. A lifespan that fails is named in an InvalidInput."""
        if self._lifespans:
            await asyncio.wrap_future(self._open())

    async def aclose(self) -> None:
        """Close what handlers share, then the loop."""
        # Without a thread there is nothing to wait for; the simulated loop has no threads at all.
        if self._thread is not None:
            await asyncio.to_thread(self.close)

    def close(self) -> None:
        """The same, from a thread that does not run the loop."""
        thread = self._thread
        if thread is None or not thread.is_alive():
            return
        with suppress(RuntimeError):
            self.call(self._begin_end)
        thread.join(CLOSE_SECONDS)
        if thread.is_alive():
            log.warning("a handler blocks the handlers' event loop; it is left behind")

    # -- lifespans ---------------------------------------------------------------------------------------------------
    def _open(self) -> Future[None]:
        opened = self._opened
        if opened is None:
            opened = self._opened = Future()
            self.call(lambda: self._begin_holding(opened))
        return opened

    def _begin_holding(self, opened: Future[None]) -> None:
        self._closing = asyncio.Event()
        self._holding = asyncio.get_running_loop().create_task(self._hold(opened, self._closing))

    async def _hold(self, opened: Future[None], closing: asyncio.Event) -> None:
        """Enter and leave the lifespans in one task, as the cancel scopes of some libraries need it."""
        try:
            async with AsyncExitStack() as stack:
                values: dict[str, Any] = {}
                for lifespan in self._lifespans:
                    name = getattr(lifespan, "__name__", type_name(lifespan))
                    try:
                        _add(values, name, await stack.enter_async_context(_manager(lifespan)))
                    except InvalidInput as problem:
                        opened.set_exception(problem)
                        return
                    except Exception as problem:  # noqa: BLE001 - user code; the worker that starts says it
                        opened.set_exception(InvalidInput(f"the lifespan {name} failed: {exception_text(problem)}"))
                        return
                self.shared.fill(values)
                opened.set_result(None)
                await closing.wait()
        except Exception:
            log.exception("closing what handlers share failed")
        finally:
            self.shared.fill({})
            if not opened.done():
                opened.set_exception(InvalidInput("the handlers' event loop ended before its lifespans were open"))
            if self._opened is opened:
                self._opened = None

    def _call_when_open(
        self, opened: Future[None], function: Callable[[], object], refused: Callable[[str], object]
    ) -> None:
        problem = opened.exception()
        if problem is None:
            with suppress(OSError, RuntimeError):
                self.call(function)
        else:
            refused(str(problem))

    async def _end_holding(self) -> None:
        if self._holding is not None and self._closing is not None:
            self._closing.set()
            await asyncio.wait([self._holding], timeout=CLOSE_SECONDS / 2)

    # -- the thread --------------------------------------------------------------------------------------------------
    def _start(self) -> None:
        loop = new_loop()
        thread = threading.Thread(target=self._live, args=(loop,), name="stepkeep-handlers", daemon=True)
        try:
            thread.start()
        except BaseException:
            loop.close()
            raise
        self._loop, self._thread = loop, thread

    def _live(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            while not self._is_over and not loop.is_closed():
                why = "a handler stopped it"
                try:
                    loop.run_forever()
                except (SystemExit, KeyboardInterrupt) as problem:
                    # An exception from a handler's task or callback; the loop and all its tasks are intact.
                    why = f"{exception_text(problem)} was raised on it"
                if not self._is_over:
                    self._tell_stop(why)
            problem_text = "it was closed"
        except BaseException as problem:  # noqa: BLE001 - the loop itself is broken, by a closed descriptor perhaps
            problem_text = exception_text(problem)
        finally:
            asyncio.set_event_loop(None)
            with suppress(Exception):
                loop.close()
        if not self._is_over:
            self._replace(loop, problem_text)

    def _tell_stop(self, why: str) -> None:
        now = time.monotonic()
        if now - self._stop_told_at > STOPS_TOLD_EVERY:
            self._stop_told_at = now
            log.warning("the handlers' event loop ended early: %s; it is run again", inert_line(why))

    def _replace(self, loop: asyncio.AbstractEventLoop, why: str) -> None:
        log.error("the handlers' event loop broke: %s; another one is started", inert_line(why))
        with self._lock:
            if self._loop is loop:
                self._loop, self._opened, self._holding = None, None, None
        for pool in list(self._pools):
            pool.loop_lost(inert_line(why))

    def _begin_end(self) -> None:
        self._holding_end = asyncio.get_running_loop().create_task(self._end())

    async def _end(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await self._end_holding()
            await loop.shutdown_asyncgens()
        finally:
            self._is_over = True
            loop.stop()


_LIVE = HandlerLoop._live.__code__


class HostLoop(HandlerLoop):
    """The loop of the host program, which runs it and ends it. A handler that blocks it blocks the program."""

    def __init__(self, loop: asyncio.AbstractEventLoop, lifespans: Sequence[Lifespan] = ()) -> None:
        super().__init__(lifespans)
        self._loop, self._thread = loop, threading.current_thread()

    def _start(self) -> None:
        raise RuntimeError("the event loop of the program has ended")

    async def aclose(self) -> None:
        await self._end_holding()

    def close(self) -> None:
        """Nothing: the program ends its loop itself, and `aclose` has closed what handlers share."""


def handler_loop(
    registry: Registry, lifespan: Lifespan | None = None, loop: Literal["own", "mine"] = "own"
) -> HandlerLoop:
    """The loop for async handlers: in a thread of its own, or the one that runs here."""
    if lifespan is not None and not callable(lifespan):
        raise InvalidInput(
            f"lifespan is an async function with one `yield`, not a value of type {type_name(lifespan)}."
        )
    opened = (*registry.lifespans, *(() if lifespan is None else (lifespan,)))
    if arguments.choice("loop", loop, ("own", "mine")) == "own":
        return HandlerLoop(opened)
    try:
        return HostLoop(asyncio.get_running_loop(), opened)
    except RuntimeError:
        raise InvalidInput('loop="mine" needs a running event loop: create the engine\'s worker inside it.') from None


class _Selector(selectors.DefaultSelector):
    """Ends a forked copy of the worker before its loop can wait on descriptors that it shares with the worker."""

    def __init__(self) -> None:
        super().__init__()
        self._pid = os.getpid()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        end_copy(self._pid)
        return super().select(timeout)


def new_loop() -> asyncio.AbstractEventLoop:
    """A loop for handlers: asyncio's own with the selector above, or that of another policy."""
    loop = asyncio.new_event_loop()
    if type(loop) is not asyncio.SelectorEventLoop:
        return loop
    loop.close()
    return asyncio.SelectorEventLoop(_Selector())


def _manager(lifespan: Lifespan) -> AbstractAsyncContextManager[Any]:
    made = asynccontextmanager(lifespan)() if inspect.isasyncgenfunction(lifespan) else lifespan()
    if not isinstance(made, AbstractAsyncContextManager):
        raise InvalidInput(
            f"a lifespan is an async function with one `yield`, or returns an async context manager; "
            f"{getattr(lifespan, '__name__', type_name(lifespan))} returned a value of type {type_name(made)}."
        )
    return made


def _add(values: dict[str, Any], name: str, given: object) -> None:
    if given is None:
        return
    if not isinstance(given, Mapping):
        raise InvalidInput(
            f"the lifespan {name} yields a value of type {type_name(given)}. Yield a mapping: "
            'yield {"pool": pool}, which handlers read as ctx.shared["pool"].'
        )
    if twice := [key for key in given if key in values]:
        raise InvalidInput(f"the lifespan {name} yields {twice[0]!r}, and so does another one. Rename one of them.")
    values.update(given)
