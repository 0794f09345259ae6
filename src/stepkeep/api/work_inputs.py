"""Renders the inputs of claimed steps for remote workers that do not do so by themselves, such as other languages.

A step that needs more than its handler (rules before it, a transaction, inputs that cannot be rendered) is handed back
or failed here, as a worker would do. Secrets are not here: their references stay as they are written. `work` calls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from stepkeep.definition.secrets import reference
from stepkeep.edges.safe_text import exception_text
from stepkeep.kernel.outcomes import Failed, Outcome, Released
from stepkeep.kernel.states import Category
from stepkeep.operations.remote_work import RemoteWork, Report
from stepkeep.operations.transact import Claim
from stepkeep.worker.executor import Job, Prepared
from stepkeep.worker.payloads import storable_text
from stepkeep.worker.templates import inputs_of, numbers_read


async def rendered_claims(
    work: RemoteWork, worker_id: str, claims: Sequence[Claim]
) -> list[tuple[Claim, dict[str, Any]]]:
    """Each claim with its inputs. Claims that cannot be given are reported here, and left out."""
    if not claims:
        return []
    details = await work.details(worker_id, {claim.run_id for claim in claims})
    ready, refused = [], []
    for claim in claims:
        outcome = _unfit(claim)
        if outcome is None:
            try:
                template = inputs_of(claim.plan, claim.planned)
                numbers = numbers_read(template, claim.plan, claim.planned)
                wants = [(claim.run_id, no) for no in numbers.values()]
                outputs = await work.outputs(worker_id, wants) if wants else {}
                job = Job(claim, cast(Prepared, None))
                job.details = details.get(claim.run_id)
                job.outputs = {name: outputs.get((claim.run_id, no)) for name, no in numbers.items()}
                job.arguments = await work.arguments(claim)
                job.secrets = {name: reference(name) for name in template.secrets}
                inputs = template.render(job)
            except Exception as problem:  # noqa: BLE001 - inputs that cannot be rendered fail their step alone
                error = storable_text(f"the inputs cannot be rendered: {exception_text(problem)}")
                outcome = Failed(category=Category.VALIDATION, error=error, final=True)
            else:
                ready.append((claim, {**_data(job, inputs, work), "checkpoints": await _checkpoints(work, claim)}))
        if outcome is not None:
            refused.append(Report(run_id=claim.run_id, no=claim.step.no, fence=claim.step.fence, outcome=outcome))
            if isinstance(outcome, Released):
                work.set_unfit(worker_id, claim.step.queue)
    if refused:
        await work.report(worker_id, refused, None, request=None)
    return ready


def _unfit(claim: Claim) -> Outcome | None:
    """Why a worker that knows handlers only cannot run this step."""
    planned = claim.planned
    why = None
    if planned.has_pre:
        why = "it has rules before its handler"
    elif planned.definition.transactional:
        why = "it is transactional, and needs the database"
    return None if why is None else Released(reason=f"a remote worker of the plain protocol cannot run it: {why}")


def _data(job: Job, inputs: Any, work: RemoteWork) -> dict[str, Any]:
    details = job.details
    job.opened = work.opened_value
    woken = job.woken_by()
    return {
        "inputs": inputs,
        "input": None if details is None else msgspec.Raw(details.input),
        "business_key": None if details is None else details.business_key,
        "correlation_id": None if details is None else details.correlation_id,
        "woken_by": None
        if woken is None
        else {"timed_out": woken.timed_out, "id": woken.id, "name": woken.name, "payload": woken.payload},
        "has_rules": job.claim.planned.has_rules,
        "by_hand": job.claim.planned.by_hand,
    }


async def _checkpoints(work: RemoteWork, claim: Claim) -> dict[str, Any]:
    """What earlier attempts of the step have recorded, by name."""
    note = (await work.opened(claim)).note
    return {} if note is None else {one.name: msgspec.Raw(one.value.encode()) for one in note.checkpoints}
