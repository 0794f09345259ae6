"""Transactional steps: the handler's writes, the fence check, the decision and the commit are one transaction.

Such a step runs exactly once, as far as that database can tell: if its lease was lost, its writes are rolled back. If
an outage ends the transaction, the step is released and nothing is counted. The transaction lives on the worker's loop;
the handler uses its connection through `ctx.connection`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from stepkeep.edges.safe_text import exception_text
from stepkeep.kernel.decide.decision import Accepted, Reply
from stepkeep.kernel.errors import Refused, StoreError, StoreUnavailable
from stepkeep.kernel.machine.events import StepReported
from stepkeep.kernel.machine.outcomes import Completed, Failed, Outcome, Released
from stepkeep.kernel.machine.states import Category, ErrorClass
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.remote.asked_calls import Proposed, refused
from stepkeep.worker.attempts.classify import failure_of
from stepkeep.worker.attempts.executor import Job
from stepkeep.worker.attempts.payloads import storable_text
from stepkeep.worker.bridge import Bridge, bridged

log = logging.getLogger("stepkeep.worker")

MAX_UNCOUNTED = 20
"""How many claims of a step may remain uncounted before an outage counts as a failure. Otherwise a handler whose own
statement ends the connection, or the server, would run forever."""

BY_THE_OUTAGE = (Category.TRANSIENT, Category.UNKNOWN)
"""Categories that a handler may report when the database fails under it. Any other category is its own result and is
kept."""


class _RollBack(Exception):
    """Leave the transaction without committing it."""

    def __init__(self, outcome: Outcome, reply: Reply | None = None) -> None:
        super().__init__()
        self.outcome, self.reply = outcome, reply


async def attempt_in_transaction(
    transactor: Transactor,
    start: Callable[[Sequence[Job]], None],
    job: Job,
    event: Callable[[Outcome], StepReported],
    is_held: Callable[[], bool],
) -> tuple[Outcome, Reply | None]:
    """Run a job inside a transaction. With a reply, the outcome was reported in it; without one, it must still be
    reported."""
    loop = asyncio.get_running_loop()
    try:
        async with transactor.store.transaction() as transaction:
            job.connection = bridged(transaction.connection, loop)
            job.waiter = loop.create_future()
            start([job])
            try:
                outcome = await job.waiter
            finally:
                # Tasks that the handler left running must not write into this transaction or the next one.
                if isinstance(job.connection, Bridge):
                    job.connection.end()
            if isinstance(outcome, Proposed):
                raise _RollBack(refused(outcome, "a transactional step cannot add steps; it was rolled back"))
            if not isinstance(outcome, Completed) or not is_held():
                raise _RollBack(_after_outage(job, outcome) if transaction.is_lost else outcome)
            reply = await transactor.report_in(transaction, event(outcome))
            if isinstance(reply, Refused):
                raise _RollBack(outcome, reply)
            if not isinstance(reply, Accepted):
                raise reply
    except _RollBack as back:
        return back.outcome, back.reply
    except StoreUnavailable as problem:
        # It may have been committed; then the step is no longer held, and this report is refused.
        return _after_outage(job, _uncommitted(problem)), None
    except StoreError as problem:
        return _uncommitted(problem), None
    except Exception as problem:
        log.exception("the transaction of step %s of run %s broke", job.claim.planned.name, job.claim.run_id)
        return failure_of(problem), None
    return outcome, reply


def _after_outage(job: Job, outcome: Outcome) -> Outcome:
    """The outcome of an attempt whose transaction was lost: released, or what the handler returned."""
    step = job.claim.step
    is_own_verdict = isinstance(outcome, Failed) and (outcome.final or outcome.category not in BY_THE_OUTAGE)
    if not isinstance(outcome, Failed) or is_own_verdict or step.fence - step.attempts > MAX_UNCOUNTED:
        return outcome
    named = (job.claim.planned.name, job.claim.run_id)
    log.warning("step %s of run %s is handed back: the database failed under it: %s", *named, outcome.error)
    return Released()


def _uncommitted(problem: Exception) -> Failed:
    return Failed(category=Category.TRANSIENT, error=_did_not_commit(problem), error_class=ErrorClass.TRANSPORT)


def _did_not_commit(problem: Exception) -> str:
    return storable_text(f"the transaction of the step did not commit: {exception_text(problem)}")
