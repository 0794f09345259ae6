"""Runs a finished run again: a new run of the same definition and input that names the old one.

It keeps the business key, the correlation id and the labels, and the names of all people who asked for the runs before.
"""

from __future__ import annotations

from stepkeep.kernel.decide.decision import requesters_of
from stepkeep.kernel.errors import Conflict, NotFound
from stepkeep.kernel.machine.states import RUN_TERMINAL
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations import validate
from stepkeep.operations.pipeline.plans import plan_of
from stepkeep.operations.pipeline.start import Started, Starter, StartRequest
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.store.change import ANY_CALLER

OPERATION = "rerun"


async def rerun(
    transactor: Transactor,
    starter: Starter,
    run_id: str,
    *,
    caller: Caller,
    given: bytes | None = None,
    idempotency_key: str | None = None,
    scope: str = ANY_CALLER,
) -> Started:
    """Start a new run like the old one. The old run stays as it is, because terminal states are never left."""
    found = await transactor.store.read_run(caller.tenant, validate.run_id(run_id))
    if found is None:
        raise NotFound(f"there is no run {run_id}")
    if found.run.state not in RUN_TERMINAL:
        raise Conflict(f"run {run_id} is still {found.run.state}; cancel it or wait for its end before a rerun.")
    return await starter.start(
        StartRequest(
            plan=await plan_of(transactor, caller.tenant, run_id),
            caller=caller,
            input=(await transactor.payloads.detail(found.details)).input if given is None else given,
            operation=OPERATION,
            idempotency_key=idempotency_key,
            scope=scope,
            business_key=found.details.business_key,
            correlation_id=found.details.correlation_id,
            priority=found.run.priority,
            rerun_of=run_id,
            labels=found.details.labels,
            asked_before=requesters_of(found.details),
        )
    )
