"""How far running steps are, as their handlers last said through the reports of their workers.

It only reads. A value counts for the attempt that said it: the run, the number and the fence must match, and the step
must still run. `views` and `diagnosis` call it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from stepkeep.kernel.machine.rows import Step
from stepkeep.kernel.machine.states import StepState
from stepkeep.operations.instants import instant
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.remote.services import read_service
from stepkeep.operations.runs.run_answers import Progress


async def read_progress(transactor: Transactor, tenant: str, run_id: str, steps: Iterable[Step]) -> dict[int, Progress]:
    """The progress by the number of the step. No statement is made if no step runs."""
    held = {step.no: step for step in steps if step.state is StepState.RUNNING and step.worker is not None}
    numbers = {step.worker for step in held.values() if step.worker is not None}
    if not numbers:
        return {}
    found: dict[int, Progress] = {}
    for report in await transactor.store.read_worker_reports(tenant, numbers):
        service = read_service(report.body)
        for said in () if service is None else service.progress:
            step = held.get(said.no)
            if step is None or (said.run_id, said.fence, report.worker) != (run_id, step.fence, step.worker):
                continue
            found[said.no] = Progress(
                fraction=said.fraction,
                text=msgspec.json.decode(transactor.payloads.seal.visible(bytes(said.text))),
                at=instant(report.reported_at - said.ago_us),
            )
    return found


def progress_words(progress: Progress | Mapping[str, Any] | None) -> str:
    """`40 % page 12`; empty if nothing was said.

    >>> progress_words(Progress(fraction=0.4, text="page 12", at=None))
    '40 % page 12'
    """
    if progress is None:
        return ""
    share = "" if progress["fraction"] is None else f"{progress['fraction']:.0%}".replace("%", " %")
    return " ".join(part for part in (share, progress["text"]) if part)
