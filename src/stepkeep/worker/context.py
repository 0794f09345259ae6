"""`Context`: what a handler can read about its attempt, and what it can record while it runs.

It carries values and collects costs and events. It reads the database only for outputs of earlier steps that were not
loaded beforehand. The worker creates one per attempt, for handlers that take it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, SupportsFloat

import msgspec

from stepkeep.edges.safe_text import inert_line, plain_text, type_name
from stepkeep.edges.secret_values import KNOWN
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.outcomes import Emitted
from stepkeep.operations import validate
from stepkeep.worker.attempts.once import Checkpoints, LocalCheckpoints, await_once, call_once, checked_name
from stepkeep.worker.attempts.payloads import bound_emitted, encode
from stepkeep.worker.attempts.streams import Stream, WrittenStreams
from stepkeep.worker.bridge import runs_a_loop
from stepkeep.worker.cancellation import Cancellation, HandlerCancelled
from stepkeep.worker.statements import Statements

logger = logging.getLogger("stepkeep.handler")
logger.addFilter(KNOWN)


class _KeptLines(logging.Filter):
    """Gives each line that is logged to the attempt that logged it; leaves none out. A handler of the logging module
    would keep warnings from programs that set up no logging."""

    def filter(self, record: logging.LogRecord) -> bool:
        streams = getattr(record, "_streams", None)
        if isinstance(streams, WrittenStreams):
            streams.log(record)
        return True


logger.addFilter(_KeptLines())

_decode = msgspec.json.Decoder().decode

MOST_PROGRESS_TEXT = 200


class Progress(msgspec.Struct, frozen=True):
    """What a handler last said about how far it is. `at` is a reading of `time.monotonic()`."""

    fraction: float | None
    text: str
    at: float


class Woken(msgspec.Struct, frozen=True, kw_only=True):
    """What ended the wait of a step: the message that arrived, or its deadline (`timed_out`).

    After a wait for several messages `payload` is the list of their payloads, also of those that came before its
    deadline; `id` and `name` are those of the last one.
    """

    id: str | None = None
    name: str | None = None
    payload: Any = None
    timed_out: bool = False


class Outputs(Mapping[str, Any]):
    """Outputs of the steps before this one, by name; None for a step that has none.

    What templates and direct dependencies need is there from the start; anything else is fetched on first use, which
    blocks for one read of the database.
    """

    __slots__ = ("_fetch", "_known", "_names", "_values")

    def __init__(
        self,
        names: tuple[str, ...],
        known: Mapping[str, bytes | None],
        fetch: Callable[[str], bytes | None] | None,
    ) -> None:
        self._names, self._known, self._fetch = names, known, fetch
        self._values: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name in self._values:
            return self._values[name]
        if name in self._known:
            encoded = self._known[name]
        elif name in self._names and self._fetch is not None:
            encoded = self._fetch(name)
        else:
            raise KeyError(f"{name} does not come before this step; outputs are known of: {', '.join(self._names)}")
        value = None if encoded is None else _decode(encoded)
        self._values[name] = value
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Context:
    """One attempt, as its handler sees it."""

    __slots__ = {
        "_calling": "",
        "_checkpoints": "",
        "_cost": "",
        "_counts": "",
        "_emitted": "",
        "_emitted_bytes": "",
        "_input": "",
        "_logger": "",
        "_progress": "",
        "_progressed": "",
        "_spent": "",
        "_statements": "",
        "_streams": "",
        "attempt": "The number of this attempt of the step, from 1.",
        "business_key": "The business key of the run; None without one.",
        "cancelled": "Whether the handler was asked to end early, and why; `check_cancelled` raises it.",
        "completion_token": "What completes the step by hand, for the person or system that will do so; else None.",
        "connection": "The database connection of a transactional step; None in all others.",
        "correlation_id": "The correlation id of the run.",
        "deadline": "When the time for this attempt ends, as a reading of `time.monotonic()`.",
        "deadline_at": "The same moment in microseconds since 1970.",
        "effect_of": "In an undo of an adopted step: the run that did what is undone. None in all others.",
        "idempotency_key": "The same over all attempts of a step: hand it to whatever must not do a thing twice.",
        "key_of": "In a call that a retry makes again: the earlier run whose key it keeps. None in all others.",
        "outputs": "The outputs of finished steps that this one reads, by name.",
        "run_id": "The id of the run.",
        "shared": "What the worker's lifespans opened, by name.",
        "step": "The name of the step. In a flow, the method that calls a handler; the name is `step_name` there.",
        "tenant": "The tenant of the run.",
        "trace": "The W3C `traceparent` to pass on: of this attempt if the worker writes spans, else of the run.",
        "undoing": "Whether this is the undo of the step.",
        "version": "The version of the workflow.",
        "woken_by": "What ended the wait after `wait_for`: the message, or the deadline. None in other attempts.",
        "workflow": "The name of the workflow.",
    }

    def __init__(
        self,
        *,
        run_id: str,
        workflow: str,
        version: int,
        step: str,
        attempt: int = 1,
        tenant: str = "default",
        undoing: bool = False,
        input: Any = None,  # noqa: A002 - the word people use for it
        outputs: Mapping[str, Any] | None = None,
        correlation_id: str = "",
        business_key: str | None = None,
        woken_by: Woken | None = None,
        deadline: float = float("inf"),
        deadline_at: int = 0,
        completion_token: str | None = None,
        cancelled: Cancellation | None = None,
        connection: Any = None,
        shared: Mapping[str, Any] | None = None,
        progressed: Callable[[], None] | None = None,
        trace: str | None = None,
        effect_of: str | None = None,
        key_of: str | None = None,
        checkpoints: Checkpoints | None = None,
        streams: WrittenStreams | None = None,
    ) -> None:
        self.trace = trace
        self.run_id, self.workflow, self.version, self.tenant = run_id, workflow, version, tenant
        self.step, self.attempt, self.undoing = step, attempt, undoing
        # What an adopted step did has one undo, whichever run executes it: its key is that of the run that did it.
        self.effect_of, self.key_of = effect_of, key_of
        # A call that a retry makes again with equal arguments is the same one for whatever took its key before.
        own_key = f"{effect_of or run_id}:{step}:compensate" if undoing else f"{key_of or run_id}:{step}"
        self.idempotency_key = own_key
        self._input = input
        self.outputs: Mapping[str, Any] = {} if outputs is None else outputs
        self.correlation_id, self.business_key = correlation_id, business_key
        self.woken_by = woken_by
        self.deadline, self.deadline_at = deadline, deadline_at
        self.completion_token = completion_token
        self.cancelled = Cancellation() if cancelled is None else cancelled
        self.connection = connection
        self.shared: Mapping[str, Any] = {} if shared is None else shared
        self._cost: dict[str, float] | None = None
        self._spent: bytes | None = None
        self._emitted: list[Emitted] | None = None
        self._emitted_bytes = 0
        self._logger: logging.LoggerAdapter[logging.Logger] | None = None
        self._statements: Statements | None = None
        self._progress: Progress | None = None
        self._progressed = progressed
        self._checkpoints: Checkpoints = LocalCheckpoints() if checkpoints is None else checkpoints
        self._streams = WrittenStreams() if streams is None else streams
        self._calling: set[str] = set()
        self._counts: dict[str, int] | None = None

    @property
    def input(self) -> Any:
        """The input of the run."""
        if type(self._input) is msgspec.Raw:
            # Kept as JSON from the database: most handlers use their arguments and never read it.
            self._input = _decode(self._input)
        return self._input

    def cost(self, *, usd: float = 0, tokens: int = 0, **other: float) -> None:
        """Add to what this attempt has cost; amounts of the same name add up, and are kept even if it fails.

        >>> ctx = Context(run_id="r1", workflow="w", version=1, step="s")
        >>> ctx.cost(usd=0.02, tokens=150)
        >>> ctx.cost(tokens=50)
        >>> ctx.spent
        b'{"usd":0.02,"tokens":200}'
        """
        said = {"usd": usd, "tokens": tokens, **other}
        added = dict(self._cost or {})
        for name, given in said.items():
            # Plain numbers only: the worker reads the sum on its own loop, where no user code may run.
            amount = given if type(given) in (int, float) else _amount(name, given)
            if amount:
                added[name] = added.get(name, 0) + amount
        # Encode first: if the sum cannot be stored, the earlier sum remains.
        self._spent = encode(added, what="the cost") if added else None
        self._cost = added

    def emit(self, name: str, payload: Any = None) -> None:
        """Tell the outside world, through the outbox, if and when this attempt's result is accepted.

        An attempt may emit 1,000 events that hold 4 MiB of JSON in sum; the name has 1 to 255 printable characters.
        """
        name = validate.key("the name of an event to emit", name)
        emitted = Emitted(name, encode(payload, what=f"the payload of {name}"))
        so_far = self._emitted or []
        size_bytes = self._emitted_bytes + len(emitted.payload)
        bound_emitted(len(so_far) + 1, size_bytes)
        self._emitted, self._emitted_bytes = [*so_far, emitted], size_bytes

    def progress(self, fraction: float | None, text: str = "") -> None:
        """Say how far this attempt is: a fraction from 0 to 1 (None if unknown), and up to 200 characters of text.

        `show` and `explain` have the last value while the attempt runs; no history is kept. A call is cheap: it writes
        nothing to the database. The worker publishes the first value at once, and later ones every two seconds.

        >>> ctx = Context(run_id="r1", workflow="w", version=1, step="s")
        >>> ctx.progress(0.4, "page 12")
        >>> ctx.last_progress.fraction, ctx.last_progress.text
        (0.4, 'page 12')
        """
        self._progress = Progress(_fraction(fraction), _progress_text(text), time.monotonic())
        if self._progressed is not None:
            self._progressed()

    def stream(self, name: str, *, after: str | None = None) -> Stream:
        """A durable stream of the run, to which this attempt appends: `ctx.stream("tokens").write(chunk)`.

        Readers follow it while it grows. What an attempt writes replaces what earlier attempts of the step wrote. With
        `after`, it goes on behind that position of an earlier attempt instead, or behind the `"last"` one. An attempt
        may write 15 streams; a run 64 MiB.

        >>> ctx = Context(run_id="r1", workflow="w", version=1, step="s")
        >>> ctx.stream("tokens").write("Hello")
        """
        return self._streams.open(name, after)

    def once(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function and record what it returned; a later attempt of this step gets that and calls nothing.

        An async handler awaits the call: `paid = await ctx.once("charge", charge, cents)`. The value is JSON, and what
        is given back is the recorded value. A function that raises records nothing. If the worker dies between the
        call and the record, the next attempt calls it again: give `ctx.idempotency_key` to what must not act twice.

        >>> ctx = Context(run_id="r1", workflow="w", version=1, step="s")
        >>> ctx.once("number", lambda: 7), ctx.once("number", lambda: 8)
        (7, 7)
        """
        name = checked_name(name, function)
        if runs_a_loop():
            return self._await_once(name, lambda: function(*args, **kwargs))
        self._begin(name)
        try:
            return call_once(self._checkpoints, name, lambda: function(*args, **kwargs))
        finally:
            self._calling.discard(name)

    async def _await_once(self, name: str, call: Callable[[], Any]) -> Any:
        self._begin(name)
        try:
            return await await_once(self._checkpoints, name, call)
        finally:
            self._calling.discard(name)

    def counted(self, name: str) -> int:
        """How often this attempt has asked for a checkpoint of this kind, this time included."""
        if self._counts is None:
            self._counts = {}
        self._counts[name] = count = self._counts.get(name, 0) + 1
        return count

    def _begin(self, name: str) -> None:
        if name in self._calling:
            raise InvalidInput(f"ctx.once: {name} is being called already. Give each checkpoint a name of its own.")
        self._calling.add(name)

    def execute(self, sql: str, *args: Any) -> Any:
        """Run a statement in the transaction of this step, and return how many rows it changed.

        Write `$1`, `$2` for the values, on SQLite and PostgreSQL alike. An async handler awaits the call:
        `await ctx.execute("update stock set n = n - $2 where sku = $1", sku, 3)`; another one just makes it.
        """
        return self._transaction("execute").execute(sql, args)

    def fetch(self, sql: str, *args: Any) -> Any:
        """All rows of a query in the transaction of this step, as dicts. An async handler awaits the call."""
        return self._transaction("fetch").fetch(sql, args)

    def fetch_one(self, sql: str, *args: Any) -> Any:
        """The first row of a query in the transaction of this step as a dict, or None. An async handler awaits it."""
        return self._transaction("fetch_one").fetch_one(sql, args)

    @property
    def _own_name(self) -> str:
        return self.step

    def _transaction(self, method: str) -> Statements:
        if self.connection is None:
            raise InvalidInput(
                f"ctx.{method} is for transactional steps, and {self._own_name} is none: declare its handler with "
                "@stepkeep.step(transactional=True)."
            )
        if self._statements is None:
            self._statements = Statements(self.connection)
        return self._statements

    def check_cancelled(self) -> None:
        """Raise HandlerCancelled if the handler was asked to end early."""
        if self.cancelled.why is not None:
            raise HandlerCancelled(self.cancelled.why)

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records carry the run, the step and the attempt. Its lines are kept in the stream `log`."""
        if self._logger is None:
            about = {"run_id": self.run_id, "step": self._own_name, "attempt": self.attempt, "_streams": self._streams}
            self._logger = logging.LoggerAdapter(logger, about)
        return self._logger

    @property
    def spent(self) -> bytes | None:
        """The sum of all `cost` calls, as JSON; None if there was none."""
        return self._spent

    @property
    def last_progress(self) -> Progress | None:
        """What the last call of `progress` said; None if there was none."""
        return self._progress

    @property
    def streams(self) -> WrittenStreams:
        """What was written to streams."""
        return self._streams

    @property
    def emitted(self) -> tuple[Emitted, ...]:
        """The events collected by `emit`."""
        return tuple(self._emitted or ())

    def __repr__(self) -> str:
        return f"Context(run={self.run_id}, step={self._own_name}, attempt={self.attempt})"


def renew(
    context: Context,
    *,
    attempt: int,
    deadline: float,
    deadline_at: int,
    cancelled: Cancellation,
    progressed: Callable[[], None] | None,
    trace: str | None,
    checkpoints: Checkpoints,
    fence: int,
    keeps_report: bool = False,
) -> None:
    """The worker goes on with a suspended flow in another attempt, which reports what is collected from here on."""
    context.attempt, context.cancelled, context.trace = attempt, cancelled, trace
    context.deadline, context.deadline_at = deadline, deadline_at
    context._progressed, context._checkpoints, context._progress = progressed, checkpoints, None
    context._streams.fence = fence
    if not keeps_report:
        clear_report(context)


def clear_report(context: Context) -> None:
    """Drop the costs and events that were collected, because they are on record."""
    context._cost = context._spent = context._emitted = None
    context._emitted_bytes = 0
    context._streams.drop()


def _amount(name: str, given: object) -> float:
    """A number of another type, such as Decimal, as a plain number. Text is not accepted, even if it holds digits."""
    if isinstance(given, (str, bytes, bytearray)) or not isinstance(given, SupportsFloat):
        raise InvalidInput(f"cost: {name} is a number, not a value of type {type_name(given)}.")
    return float(given)


def _fraction(given: object) -> float | None:
    if given is None:
        return None
    if isinstance(given, (bool, str, bytes, bytearray)) or not isinstance(given, SupportsFloat):
        raise InvalidInput(
            f"progress: the fraction is a number from 0 to 1, or None; not a value of type {type_name(given)}."
        )
    fraction = float(given)
    if not 0 <= fraction <= 1:
        raise InvalidInput(f"progress: the fraction is a number from 0 to 1, or None; not {fraction!r}.")
    return fraction


def _progress_text(given: object) -> str:
    """The text on one safe line, without the values of secrets."""
    said = plain_text(given)
    if said is None:
        raise InvalidInput(f"progress: the text is a str, not a value of type {type_name(given)}.")
    # Hidden before it is cut: part of a value must not stay.
    shown = inert_line(KNOWN.hide(said)[: MOST_PROGRESS_TEXT + 1], 10 * MOST_PROGRESS_TEXT)
    return shown if len(shown) <= MOST_PROGRESS_TEXT else f"{shown[: MOST_PROGRESS_TEXT - 1]}…"
