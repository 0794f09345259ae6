"""One flow under way: its coroutine, the calls that it has made, and what they came to.

The first attempt starts the coroutine. Every attempt feeds it the ends of calls, in the order in which they were
recorded and one at a time, so that a replay takes the same way. What is new becomes a report. It reads no database.
`executors/flow.py` calls it on the handlers' loop.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from types import CodeType
from typing import Any, NoReturn

import msgspec

from stepkeep.kernel.machine.rows import Called, Grown
from stepkeep.kernel.machine.states import Category, StepState
from stepkeep.worker.context import Context, clear_report
from stepkeep.worker.flows.calls import Call, CallFailed, NonDeterministic, Recorded, is_meant, title_of
from stepkeep.worker.flows.loop import FlowLoop, refusal
from stepkeep.worker.flows.signatures import CallFuture

SHOWN_CALLS = 20
"""How many calls of each list the error of a flow that is not deterministic names."""

_decode = msgspec.json.Decoder().decode

Record = Callable[["Inline"], Awaitable[None]]
"""Settles the future of a checkpoint."""


class Inline(msgspec.Struct, frozen=True):
    """A checkpoint that a flow asks for: its name, the function to call, and the future of its value."""

    name: str
    call: Callable[[], Any]
    future: CallFuture[Any]
    is_kept: bool = True
    """Whether the value is recorded; one that follows from the recorded calls alone need not be."""


class Continued(BaseException):
    """Ends the function of a flow that continues as new. No error: a flow that handles errors lets it pass."""


class Flow:
    """The coroutine of one flow with everything that it has been given. `began` is the moment before the first end."""

    def __init__(
        self,
        name: str,
        code: str,
        context: Context,
        recorded: Sequence[Recorded] = (),
        grown: Grown | None = None,
        began: int = 0,
    ) -> None:
        self.name, self.code, self.context = name, code, context
        self._loop = FlowLoop(self._sleep, self._now)  # type: ignore[abstract]
        self._calls: list[Call] = []
        self._futures: list[CallFuture[Any]] = []
        self._gaps = () if grown is None else grown.free
        self._known = _by_place(recorded, self._gaps)
        self._recorded_code = None if grown is None else grown.code
        self._told = None if grown is None else grown.seen
        self._task: asyncio.Task[Any] | None = None
        self._mismatch: NonDeterministic | None = None
        self._asked: deque[Inline] = deque()
        self._known_ends = sum(one.settled is not None for one in recorded)
        self._recorded_calls = len(self._known)
        self._recorded_ends = 0
        self._cancelled: list[int] = []
        self._ended: set[int] = set()
        self._is_over = False
        self._at = began
        self._reads_clock = False
        self.sleep: Callable[[int], CallFuture[None]] | None = None
        """Makes a recorded sleep of so many microseconds, for a timer."""
        self._ending: Call | None = None
        self._continued: asyncio.Future[Any] | None = None
        self.given: list[tuple[int, int]] = []
        """The numbers and fences of the calls whose ends it has been given, in that order."""
        self.is_slow = False
        """Whether its function once took so long between two calls that nothing is fed to it ahead any more."""

    async def start(self, make: Callable[[], Coroutine[Any, Any, Any]], record: Record) -> None:
        """Start the coroutine, and run it until it awaits a call. `record` gives the values of checkpoints."""
        self._task = self._loop.create_task(make())
        await self._run(record)

    async def feed(self, ends: Sequence[Recorded], first: int, record: Record) -> None:
        """Give it the ends of calls that it was not given ahead. `first` is the number of its first call."""
        if self.is_ahead:
            await self._run(record)
        for end in sorted(ends, key=_order)[len(self.given) - self._recorded_ends :]:
            self._give(end, first)
            await self._run(record)
        if len(self._calls) < len(self._known):
            self._found_mismatch()

    def feed_ahead(self, ends: Sequence[Recorded], first: int) -> None:
        """Give it ends of calls that are not on record yet, until it asks for a checkpoint: that needs a claim."""
        for end in ends:
            if self._asked:
                return
            self._give(end, first)
            self._go()

    @property
    def asks_for_checkpoint(self) -> bool:
        """Whether it awaits the value of a checkpoint."""
        return bool(self._asked)

    def was_recorded(self, calls: int) -> None:
        """A suspension was recorded: so many of its calls are on record, and every end that it was given."""
        self._recorded_calls, self._recorded_ends, self._gaps = calls, len(self.given), ()

    @property
    def is_ahead(self) -> bool:
        """Whether it went on from ends of calls since its last recorded suspension."""
        return len(self.given) > self._recorded_ends

    def fits(self, ends: Sequence[Recorded]) -> bool:
        """Whether the ends that it was given ahead are the first ones of these, in the order of their record."""
        ahead = self.given[self._recorded_ends :]
        return ahead == [(one.no, one.fence) for one in sorted(ends, key=_order)[: len(ahead)]]

    def _give(self, end: Recorded, first: int) -> None:
        place = end.no - first
        if place >= len(self._futures):
            self._found_mismatch()
        future = self._futures[place]
        if not future.done():
            if end.state is StepState.CANCELLED:
                self._found_mismatch(f"its call {place} was cancelled, and it awaits it")
            _settle(future, end)
        self._at = end.at if end.at is not None else self._at
        self._ended.add(place)
        self.given.append((end.no, end.fence))

    def _now(self) -> int:
        self._reads_clock = True
        return self._at

    def _sleep(self, lasts: int) -> CallFuture[None]:
        assert self.sleep is not None
        return self.sleep(lasts)

    def cancels(self) -> tuple[int, ...]:
        """The places of the calls that it awaits no longer, and has no end of."""
        return tuple(place for place in self._cancelled if place not in self._ended)

    def knows_cancelled(self, ends: Iterable[tuple[int, int]], first: int, at: int | None) -> None:
        """These calls, which it has cancelled, have ended with the suspension that was just recorded."""
        for no, fence in ends:
            self._ended.add(no - first)
            self.given.append((no, fence))
            self._at = at or self._at
        self._recorded_ends = len(self.given)

    def call(self, call: Call) -> CallFuture[Any]:
        """The flow makes a call: one that is recorded at this place, or a new one."""
        self._refuse_dropped()
        place = len(self._calls)
        self._calls.append(call)
        known = self._known[place] if place < len(self._known) else None
        if known is not None and not call.is_same(known):
            self._found_mismatch()
        future: CallFuture[Any] = CallFuture(loop=self._loop)
        future.place, future.cancelled_of = place, self._cancelled.append
        self._futures.append(future)
        return future

    def _refuse_dropped(self) -> None:
        """What a flow that was dropped does in `finally` makes no calls: it would await them for ever."""
        if self._mismatch is not None:
            raise self._mismatch

    def end_by(self, call: Call) -> NoReturn:
        """The flow continues as new: its function ends here, and the call is made when all others have ended."""
        self._ending = self._ending or call
        raise Continued

    def inline(self, name: str, call: Callable[[], Any]) -> CallFuture[Any]:
        """The flow asks for a checkpoint. Its value is given when nothing else is ready, in the order of asking, so
        that a replay takes the same way whether the value is on record or not."""
        self._refuse_dropped()
        asked = Inline(name, call, CallFuture(loop=self._loop))
        self._asked.append(asked)
        return asked.future

    def patched(self, name: str) -> CallFuture[bool]:
        """Whether the run goes a new way here: if its record ends here, and then for good.

        Only that is recorded. Where the record goes on, it was made without the new way, and will go on in each replay.
        """
        is_new = len(self._calls) >= len(self._known) and len(self.given) >= self._known_ends
        asked = Inline(name, lambda: is_new, CallFuture(loop=self._loop), is_kept=is_new)
        self._asked.append(asked)
        return asked.future

    def needs_record(self) -> bool:
        """Whether it goes on from recorded ends alone: it reads when they were recorded."""
        return self._reads_clock

    @property
    def has_begun(self) -> bool:
        """Whether its coroutine was started."""
        return self._task is not None

    @property
    def open(self) -> int:
        """How many of its calls it has no end of."""
        return len(self._calls) - len(self.given)

    @property
    def is_done(self) -> bool:
        """Whether its function has ended and all its calls have."""
        return self._task is not None and self._task.done() and self.open == 0

    def result(self) -> Any:
        """What the function returned, or the run as which it continues; raises what it raised."""
        assert self._task is not None
        if self._continued is not None:
            return {"continued_as": self._continued.result()["run_id"]}
        if self._ending is not None:
            raise refusal("goes on after ctx.continue_as_new, which ends it. Let the exception that ends it pass")
        return self._task.result()

    def _continue(self) -> None:
        """Make the call by which it continues as new, once its function and all its calls have ended."""
        task, ending = self._task, self._ending
        if ending is None or self._continued is not None or task is None or not task.done() or self.open:
            return
        if not task.cancelled() and isinstance(task.exception(), Continued):
            self._continued = self.call(ending)

    def new_calls(self) -> list[Call]:
        """The calls that are not on record."""
        new = [self._calls[place] for place in self._gaps] + self._calls[self._recorded_calls :]
        if not self.open and not new:
            raise refusal("awaits something that is no call of its context, and nothing would wake it")
        return new

    def close(self) -> None:
        """Drop it: whatever it awaits is not given to it any more, and its tasks are cancelled."""
        self._mismatch = NonDeterministic("the flow was dropped")
        self._loop.end()

    async def _run(self, record: Record) -> None:
        while True:
            self._go()
            if not self._asked:
                return
            asked = self._asked.popleft()
            if not asked.future.done():
                await record(asked)

    def _go(self) -> None:
        """Run it until it awaits a call or a checkpoint, or has ended."""
        self._loop.run_ready()
        if self._mismatch is not None:
            # The function may have caught it: it must not go on from a call that was never made.
            raise self._mismatch
        if not self._asked:
            self._leave()
            self._drop_told()
            self._continue()

    def _leave(self) -> None:
        """Its function has ended: cancel what it has left under way. After an error of its own code, calls go on, for
        the code that mends it."""
        task = self._task
        if self._is_over or task is None or not task.done() or self._ending is not None:
            return
        self._is_over = True
        problem = None if task.cancelled() else task.exception()
        if problem is not None and not is_meant(problem):
            return
        self._loop.cancel_tasks()
        for place, future in enumerate(self._futures):
            if place not in self._ended:
                future.cancel()
        self._loop.run_ready()
        if self._mismatch is not None:
            raise self._mismatch

    def _drop_told(self) -> None:
        """Up to the last suspension on record, what it emits and costs was reported with that one or an earlier one."""
        if self._told is not None and len(self.given) <= self._told:
            clear_report(self.context)

    def _found_mismatch(self, why: str | None = None) -> None:
        replayed = tuple(one.title for one in self._calls)
        recorded = tuple(
            replayed[place] if one is None else title_of(one.kind, one.name, one.digest)
            for place, one in enumerate(self._known)
            if one is not None or place < len(replayed)
        )
        differs = next(
            (place for place, (one, other) in enumerate(zip(recorded, replayed, strict=False)) if one != other),
            min(len(recorded), len(replayed)),
        )
        said = (
            f"the flow {self.name} is not deterministic: {why}. "
            if why is not None
            else f"the flow {self.name} is not deterministic: its call {differs} is "
            f"{_shown(replayed, differs)}, and on record is {_shown(recorded, differs)}. "
        ) + (
            f"Recorded by code {self._recorded_code or 'unknown'}: {_listed(recorded)}. "
            f"Replayed by code {self.code}: {_listed(replayed)}."
        )
        self._mismatch = NonDeterministic(said, recorded, replayed)
        raise self._mismatch


def _by_place(recorded: Sequence[Recorded], gaps: Sequence[int]) -> list[Called | None]:
    """The calls on record by their places: None where an earlier run made a call that this one did not adopt."""
    known: list[Called | None] = [one.call for one in recorded]
    for place in gaps:
        known.insert(place, None)
    return known


def began_at(run_id: str) -> int:
    """When a run was created by its id, in microseconds; 0 for an id that does not say.

    >>> began_at("0198c0de-0000-7000-8000-000000000000")
    1755582431232000
    """
    digits = run_id.replace("-", "")[:12]
    return int(digits, 16) * 1000 if len(run_id) == 36 and set(digits) <= set("0123456789abcdef") else 0


def _order(end: Recorded) -> int:
    return end.settled or 0


def _settle(future: CallFuture[Any], end: Recorded) -> None:
    if end.state is StepState.SUCCEEDED:
        future.settle(None if end.output is None else _decode(end.output))
    elif end.state is StepState.SKIPPED and end.category is None:
        future.set_result(None)
    else:
        said = end.error or str(end.state)
        problem = CallFailed(end.call.name, said, end.category or Category.UNKNOWN)
        problem.no = end.no
        future.set_exception(problem)


def _shown(titles: tuple[str, ...], place: int) -> str:
    return titles[place] if place < len(titles) else "none"


def _listed(titles: tuple[str, ...]) -> str:
    more = len(titles) - SHOWN_CALLS
    return ", ".join(titles[:SHOWN_CALLS]) + (f" and {more} more" if more > 0 else "") or "none"


def code_of(function: Callable[..., Any]) -> str:
    """A short digest of the code of a function, by which two versions of it are told apart."""
    code = getattr(function, "__code__", None)
    return hashlib.sha256(_code_text(code)).hexdigest()[:12] if isinstance(code, CodeType) else "unknown"


def _code_text(code: CodeType) -> bytes:
    parts = [code.co_code, repr(code.co_names).encode()]
    parts += [_code_text(one) if isinstance(one, CodeType) else repr(one).encode() for one in code.co_consts]
    return b"\x00".join(parts)
