"""Outcomes of one attempt, reported by a handler or by its worker. Values only; `decide` interprets them."""

from __future__ import annotations

import msgspec

from stepkeep.kernel.machine.rows import Edge, Read
from stepkeep.kernel.machine.states import Category, ErrorClass


class Emitted(msgspec.Struct, frozen=True, gc=False):
    """An outbound event that becomes an outbox row in the transaction that accepts the outcome."""

    name: str
    payload: bytes


class Outcome(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    cost: bytes | None = None
    emit: tuple[Emitted, ...] = ()


class Completed(Outcome, frozen=True, kw_only=True, gc=False):
    """The handler returned. `token` is the SHA-256 of the completion token, issued when completion is manual."""

    output: bytes | None = None
    token: str | None = None


class Waiting(Outcome, frozen=True, kw_only=True, gc=False):
    """The handler asks to run again when a message named `event` arrives, or after `timeout`.

    `accepts`, `count` and `enough` choose messages, as those of `Wait` do.
    """

    event: str
    timeout: int | None = None
    takes_timeouts: bool = True
    accepts: str | None = None
    count: int | None = None
    enough: str | None = None


class Failed(Outcome, frozen=True, kw_only=True, gc=False):
    """The attempt failed. `delay` is the backoff that the handler asked for; `final` rules out another attempt.

    `unrun`: a rule before the handler did not hold, so that the handler did not run. `error_class` is how another
    system failed, where that is known. `unfit` is a digest of the code of a flow that raised by itself, and not for a
    call: where it would fail for good, it holds for other code instead. `blames` are the numbers of the calls for which
    a flow failed.
    """

    category: Category
    error: str
    delay: int | None = None
    final: bool = False
    unrun: bool = False
    error_class: ErrorClass | None = None
    unfit: str | None = None
    blames: tuple[int, ...] | None = None


class TimedOut(Outcome, frozen=True, kw_only=True, gc=False):
    """The attempt ran past its timeout and was stopped by its worker."""

    error: str = "the attempt ran past its timeout"


class Released(Outcome, frozen=True, kw_only=True, gc=False):
    """The worker releases the step unfinished; nothing is counted. `reason` is recorded if it has one.

    `unfit` is a digest of the code of a flow that does not fit what is recorded: the flow holds until other code is
    there, or a person decides.
    """

    reason: str | None = None
    unfit: str | None = None


class Stopped(Outcome, frozen=True, kw_only=True, gc=False):
    """The handler was cancelled because its run is stopping."""


class NewCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A call that a flow makes for the first time, or a step that a handler adds.

    The fields are those of `Called`; `arguments` is JSON. `after` are the steps that it waits for. The places in
    `after` and `reads` count from the first step of the same report.
    """

    kind: str
    name: str
    digest: str
    arguments: bytes
    step: str
    queue: int = 0
    undo_queue: int = 0
    after: tuple[Edge, ...] = ()
    reads: tuple[Read, ...] = ()


class Suspended(Outcome, frozen=True, kw_only=True, gc=False):
    """A flow awaits calls: the new `calls`, and those of earlier attempts that have not settled.

    `seen` is how many of its calls had settled when the flow went on from them. `code` is a digest of the flow's code.
    `cancels` are the places of calls that it awaits no longer, new ones among them: those that have not settled end.
    """

    calls: tuple[NewCall, ...] = ()
    seen: int = 0
    code: str | None = None
    cancels: tuple[int, ...] = ()


class Added(Outcome, frozen=True, kw_only=True, gc=False):
    """The handler returned, and adds steps to the plan. `output` is that of the handler itself."""

    calls: tuple[NewCall, ...] = ()
    output: bytes | None = None


class RulesPassed(Outcome, frozen=True, kw_only=True, gc=False):
    """Every post-execution rule held."""


class RulesFailed(Outcome, frozen=True, kw_only=True, gc=False):
    """A post-execution rule did not hold, or could not be evaluated."""

    error: str
