"""What a cancel with compensation would undo, in words: the kernel's own decision on a snapshot of the run.

It reads and changes nothing. Engines, the command line and the service call it.
"""

from __future__ import annotations

from typing import Any

from stepkeep.errors import InvariantBroken
from stepkeep.kernel.compensation import Remains
from stepkeep.kernel.decision import Need, Snapshot
from stepkeep.kernel.plan import Plan
from stepkeep.kernel.preview import Preview, preview_rollback
from stepkeep.operations.plans import plan_for
from stepkeep.operations.transact import Transactor
from stepkeep.operations.views import read_snapshot

WHY: dict[Remains, str] = {
    Remains.NO_UNDO: "it succeeded, and its definition has no undo",
    Remains.NOT_FINISHED: "its handler completed and its rules did not pass, so that its undo does not apply",
    Remains.ATTEMPTED: "nothing tells how its last attempt ended, and its undo applies to success only",
}


async def rollback_preview(transactor: Transactor, run_id: str, *, tenant: str) -> dict[str, Any]:
    """What would be undone now, in which order, and what cannot be undone and why."""
    whole = await read_snapshot(transactor, run_id, tenant=tenant)
    run = whole.record.run
    plan = await plan_for(transactor, run)
    steps = {step.no: step for step in whole.steps}
    snapshot = Snapshot(plan=plan, run=run, steps=steps, whole=True, waiting=True)
    found = preview_rollback(snapshot, await transactor.store.now())
    if isinstance(found, Need):
        raise InvariantBroken(f"the rollback of run {run_id} cannot be decided from its steps: {found}")
    return {
        "run_id": run.id,
        "state": run.state.value,
        "possible": found.refusal is None,
        "refusal": found.refusal,
        "ends": found.ends.value,
        "rollback": found.rollback.value,
        "undo": [
            {"position": position, "step": plan.at(no).name, "undo": plan.at(no + plan.size).name}
            for position, no in enumerate(found.undone, 1)
        ],
        "cannot_undo": [
            {"step": plan.at(no).name, "state": steps[no].state.value, "reason": why.value, "says": WHY[why]}
            for no, why in found.remains
        ],
        "running": [{"step": plan.at(no).name, "says": _running(plan, found, no)} for no in found.running],
    }


def _running(plan: Plan, found: Preview, no: int) -> str:
    """What becomes of an attempt in flight."""
    has_undo = plan.steps[no].definition.undo is not None
    cut_off = "it is undone" if no in found.undone else "its effect may remain"
    in_time = "it is undone first" if has_undo else "its effect remains"
    return f"if it succeeds within the grace period, {in_time}; if it is cut off, {cut_off}"
