"""From what user code said to what the kernel is told: every answer and every exception becomes an outcome.

Runs on the handler's side (its thread, loop or process), so that encoding a large result never holds up heartbeats.
It raises nothing: a result that cannot be stored is a failure that can. Places and the child process call it.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

from msgspec.structs import replace

from stepkeep.kernel.outcomes import Completed, Emitted, Failed, Outcome, Stopped, TimedOut, Waiting
from stepkeep.kernel.states import Category
from stepkeep.worker.answers import StepError, WaitFor
from stepkeep.worker.cancellation import Cancellation, HandlerCancelled, Why
from stepkeep.worker.classify import failure_of
from stepkeep.worker.context import Context
from stepkeep.worker.executor import Job
from stepkeep.worker.payloads import MAX_RESULT, Unstorable, bound_emitted, encode
from stepkeep.worker.surprises import tell

_NOTHING = Completed(output=b"null")


def answered(answer: Any, context: Context | None, limit: int = MAX_RESULT) -> Outcome:
    """What a handler that returned has said."""
    if answer is None and context is None:
        return _NOTHING
    try:
        if isinstance(answer, WaitFor):
            return _waiting(answer, context)
        if isinstance(answer, StepError):
            return _with_cost(failure_of(answer), context)
        if isinstance(answer, Outcome):
            return answer
        output = encode(answer, limit=limit)
        if context is None:
            return Completed(output=output)
        return Completed(output=output, cost=context.spent, emit=_few(context.emitted))
    except Unstorable as problem:
        return _with_cost(failure_of(problem), context)


def raised(
    problem: BaseException,
    context: Context | None,
    cancelled: Cancellation,
    otherwise: Category = Category.UNKNOWN,
    whose: str = "a handler",
) -> Outcome:
    """What a handler that raised has said. Events it emitted are dropped with its result; costs are kept.

    `whose` names the step in the log, where an exception that nothing explains leaves its traceback.
    """
    if isinstance(problem, asyncio.CancelledError | HandlerCancelled) and cancelled.why is not None:
        outcome: Outcome = TimedOut() if cancelled.why is Why.TIMED_OUT else Stopped()
    elif isinstance(problem, asyncio.CancelledError):
        outcome = Failed(category=Category.UNKNOWN, error="the handler cancelled itself")
    else:
        outcome = failure_of(problem, otherwise=otherwise)
        tell(problem, outcome, whose, otherwise)
    return _with_cost(outcome, context)


def token_digest(token: str) -> str:
    """What is stored of a completion token."""
    return hashlib.sha256(token.encode()).hexdigest()


def sign(outcome: Outcome, job: Job) -> Outcome:
    """Attach the digest of the completion token that this attempt handed out."""
    if job.completion_token is not None and isinstance(outcome, Completed):
        return replace(outcome, token=token_digest(job.completion_token))
    return outcome


def _waiting(answer: WaitFor, context: Context | None) -> Outcome:
    said = tuple(Emitted(name, encode(payload, what=f"the payload of {name}")) for name, payload in answer.emit)
    return Waiting(
        event=answer.event,
        timeout=answer.timeout,
        takes_timeouts=answer.takes_timeouts,
        cost=None if context is None else context.spent,
        emit=_few((*(context.emitted if context else ()), *said)),
    )


def _few(emitted: tuple[Emitted, ...]) -> tuple[Emitted, ...]:
    if emitted:
        bound_emitted(len(emitted), sum(len(each.payload) for each in emitted))
    return emitted


def _with_cost(outcome: Outcome, context: Context | None) -> Outcome:
    spent = None if context is None else context.spent
    return outcome if spent is None else replace(outcome, cost=spent)
