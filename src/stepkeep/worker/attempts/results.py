"""Turns what user code returned or raised into an outcome.

It runs on the handler's side (thread, loop or process), so that encoding a large result delays no heartbeat. It raises
nothing: a result that cannot be stored becomes a failure that can. Pools and the child process call it.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from stepkeep.definition.native.added import written_steps
from stepkeep.edges.safe_text import exception_text, is_a, type_name
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.outcomes import Completed, Emitted, Failed, Outcome, Stopped, TimedOut, Waiting
from stepkeep.kernel.machine.states import Category
from stepkeep.operations.remote.asked_calls import Proposed
from stepkeep.worker.answers import StepError, Then, WaitFor
from stepkeep.worker.attempts.classify import failure_of
from stepkeep.worker.attempts.executor import Job
from stepkeep.worker.attempts.payloads import MAX_RESULT, Unstorable, bound_emitted, encode, storable_text
from stepkeep.worker.attempts.unexpected import is_explained, log_unexpected, traceback_text
from stepkeep.worker.cancellation import Cancellation, HandlerCancelled, Why
from stepkeep.worker.context import Context

_NOTHING = Completed(output=b"null")

_decode = msgspec.json.Decoder().decode
_pack, _unpack = msgspec.msgpack.Encoder().encode, msgspec.msgpack.decode


def outcome_of_return(
    answer: Any,
    context: Context | None,
    limit: int = MAX_RESULT,
    *,
    may_be_outcome: bool = False,
    otherwise: Category = Category.UNKNOWN,
) -> Outcome:
    """The outcome of a handler that returned; `otherwise` is the category of its executor's own errors.

    `may_be_outcome`: the answer comes from one of our executors, which may return an outcome directly. A handler may
    not: its fields could have any type, and it could claim what only the worker knows.
    """
    if answer is None and context is None:
        return _NOTHING
    try:
        return _outcome_of_return(answer, context, limit, may_be_outcome)
    except (Unstorable, InvalidInput, MemoryError) as problem:
        return _with_cost(failure_of(problem, otherwise=otherwise), context)
    except BaseException as problem:  # noqa: BLE001 - hooks, properties and equality of the result are user code
        said = Unstorable(f"the result cannot be stored: {exception_text(problem)}")
        return _with_cost(failure_of(said, otherwise=otherwise), context)


def _outcome_of_return(answer: Any, context: Context | None, limit: int, may_be_outcome: bool) -> Outcome:
    if is_a(answer, WaitFor):
        return sound(_waiting(answer, context))
    if is_a(answer, Then):
        return sound(_proposed(answer, context, limit))
    if is_a(answer, StepError):
        return _with_cost(failure_of(answer), context)
    if is_a(answer, Outcome):
        if may_be_outcome:
            return answer  # type: ignore[no-any-return]
        raise Unstorable(
            f"the result cannot be stored: {type_name(answer)} is a record of the engine. Return a plain value, or "
            "what wait_for, then, retry_in or fail makes."
        )
    output = encode(answer, limit=limit)
    if context is None:
        return Completed(output=output)
    return Completed(output=output, cost=context.spent, emit=check_emit_limit(context.emitted))


def sound(outcome: Outcome) -> Outcome:
    """The outcome itself if every field has the type that the kernel expects; otherwise raises Unstorable."""
    try:
        _unpack(_pack(outcome), type=type(outcome))
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as problem:
        raise Unstorable(f"what the handler answered cannot be stored: {exception_text(problem)}") from None
    return outcome


class FailedWithTraceback(Failed, frozen=True, kw_only=True, gc=False):
    """A failure on its way from a pool to the worker; the traceback never reaches the kernel."""

    traceback: str

    @classmethod
    def of(cls, failed: Failed, traceback: str) -> Self:
        return cls(**{name: getattr(failed, name) for name in Failed.__struct_fields__}, traceback=traceback)

    def without_traceback(self) -> Failed:
        return Failed(**{name: getattr(self, name) for name in Failed.__struct_fields__})


def outcome_of_exception(
    problem: BaseException,
    context: Context | None,
    cancelled: Cancellation,
    otherwise: Category = Category.UNKNOWN,
    whose: str = "a handler",
) -> Outcome:
    """The outcome of a handler that raised. Its events are dropped with its result; costs are kept.

    `whose` names the step in the log, to which an unexplained exception writes its traceback.
    """
    if is_a(problem, asyncio.CancelledError, HandlerCancelled) and cancelled.why is not None:
        outcome: Outcome = TimedOut() if cancelled.why is Why.TIMED_OUT else Stopped()
    elif is_a(problem, asyncio.CancelledError):
        outcome = Failed(category=Category.UNKNOWN, error="the handler cancelled itself")
    else:
        failed = failure_of(problem, otherwise=otherwise)
        log_unexpected(problem, failed, whose, otherwise)
        outcome = failed if is_explained(problem) else FailedWithTraceback.of(failed, traceback_text(problem))
    return _with_cost(outcome, context)


def token_digest(token: str) -> str:
    """What is stored of a completion token."""
    return hashlib.sha256(token.encode()).hexdigest()


def attach_token_digest(outcome: Outcome, job: Job) -> Outcome:
    """Attach the digest of the completion token that this attempt received."""
    if job.completion_token is not None and isinstance(outcome, Completed):
        return replace(outcome, token=token_digest(job.completion_token))
    return outcome


def check_output(outcome: Outcome, job: Job) -> Outcome:
    """The outcome itself, or a failure for good if its output does not match the schema of its step."""
    shape = job.prepared.output_shape
    if shape is None or not isinstance(outcome, Completed | Proposed):
        return outcome
    wrong = shape.complaints(None if outcome.output is None else _decode(outcome.output))
    if not wrong:
        return outcome
    said = f"the output of {job.prepared.planned.name} does not fit its schema: {'; '.join(wrong)}"
    return Failed(category=Category.VALIDATION, error=storable_text(said), final=True, cost=outcome.cost)


def _waiting(answer: WaitFor, context: Context | None) -> Outcome:
    said = tuple(Emitted(name, encode(payload, what=f"the payload of {name}")) for name, payload in answer.emit)
    return Waiting(
        event=answer.event,
        timeout=answer.timeout,
        takes_timeouts=answer.takes_timeouts,
        accepts=answer.where,
        count=answer.count,
        enough=answer.until,
        cost=None if context is None else context.spent,
        emit=check_emit_limit((*(context.emitted if context else ()), *said)),
    )


def _proposed(answer: Then, context: Context | None, limit: int) -> Proposed:
    return Proposed(
        steps=encode(written_steps(answer.steps), what="the steps to add", limit=limit),
        output=encode(answer.output, limit=limit),
        cost=None if context is None else context.spent,
        emit=check_emit_limit(() if context is None else context.emitted),
    )


def check_emit_limit(emitted: tuple[Emitted, ...]) -> tuple[Emitted, ...]:
    if emitted:
        bound_emitted(len(emitted), sum(len(each.payload) for each in emitted))
    return emitted


def _with_cost(outcome: Outcome, context: Context | None) -> Outcome:
    spent = None if context is None else context.spent
    return outcome if type(spent) is not bytes else replace(outcome, cost=spent)
