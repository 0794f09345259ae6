"""Collects what `explain` and `show` need to tell why something does not move. Reads only, and decides nothing.

The rows of a run are read one statement after the other: a run that moves meanwhile is explained as it was.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from stepkeep.edges.safe_text import inert_line
from stepkeep.kernel.decide.resources import awaits_resources, resources_of
from stepkeep.kernel.definition import QueueSpec
from stepkeep.kernel.errors import InvalidInput, NotFound
from stepkeep.kernel.machine.rows import Step, Worker
from stepkeep.kernel.machine.states import StepState
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.plan import Plan
from stepkeep.operations import validate
from stepkeep.operations.access import OPERATIONS, Access
from stepkeep.operations.answers import Answer, says
from stepkeep.operations.continuation.continued import course
from stepkeep.operations.continuation.pausing import read_pause
from stepkeep.operations.instants import instant
from stepkeep.operations.limits.limits import lacking_places
from stepkeep.operations.limits.pauses import NONE, Pauses, read_pauses
from stepkeep.operations.limits.resource_claims import read_pools
from stepkeep.operations.limits.resources import waits_for
from stepkeep.operations.limits.slots import read_wait
from stepkeep.operations.people.cases import Case, asked_of, read_case
from stepkeep.operations.people.step_people import People
from stepkeep.operations.pipeline.plans import plan_for
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.remote.services import Known, Service, WaitingStep, known_workers, read_service
from stepkeep.operations.runs import counting, step_names
from stepkeep.operations.runs.causes import Cause, Explanation, PausedBy, Why
from stepkeep.operations.runs.explain import Scene, explain_run, explain_step
from stepkeep.operations.runs.progress import progress_words, read_progress
from stepkeep.operations.runs.run_answers import Continues
from stepkeep.operations.runs.staffing import explain_queue, explain_worker, judge
from stepkeep.store.protocol import Store
from stepkeep.store.records import Backlog


class CauseView(Answer, kw_only=True):
    """Why something does not move, and the command that moves it."""

    code: str
    subject: str
    sentence: str
    since: str | None
    until: str | None
    command: Annotated[str | None, says("Null where nothing is to be done, or where the caller may not do it.")]
    people: Annotated[People | UnsetType, says("Of a wait for people: who may act, who may not.")] = UNSET
    pause: Annotated[PausedBy | UnsetType, says("Of the code `paused`: what is paused.")] = UNSET


class ExplanationView(Answer, kw_only=True):
    """A chain of causes, most urgent first."""

    subject: str
    state: str
    stuck: bool
    causes: list[CauseView]
    continues: Annotated[Continues | UnsetType | None, says("Of a run: the one it repeats or continues.")] = UNSET
    continued_by: Annotated[list[str] | UnsetType, says("Of a run: those that repeat or continue it.")] = UNSET

    @property
    def why(self) -> str:
        """The causes in sentences; empty where nothing holds it back."""
        return " ".join(one.sentence for one in self.causes)


WAITS_FOR_PEOPLE = frozenset({StepState.AWAITING_APPROVAL, StepState.AWAITING_COMPLETION})


class Staff:
    """The workers of a tenant, the offers of those that are gone, the queues, what is paused, and the time."""

    def __init__(
        self,
        workers: tuple[Known, ...],
        former: tuple[Service, ...],
        specs: dict[int, QueueSpec],
        now: int,
        pauses: Pauses = NONE,
    ) -> None:
        self.workers, self.former, self.specs, self.now, self.pauses = workers, former, specs, now, pauses


async def read_staff(store: Store, tenant: str) -> Staff:
    rows, reports, queues, now, pauses = await asyncio.gather(
        store.list_workers(tenant, live_only=True),
        store.list_worker_reports(tenant),
        store.list_queues(tenant),
        store.now(),
        read_pauses(store, tenant),
    )
    numbers = {row.no for row in rows}
    gone = (read_service(one.body) for one in reversed(reports) if one.worker not in numbers)
    former = tuple(service for service in gone if service is not None)
    return Staff(known_workers(rows, reports), former, dict(queues), now, pauses)


UNSERVED = frozenset(
    {
        Why.NO_WORKER,
        Why.NO_HANDLER,
        Why.NO_VERSION,
        Why.MISFIT,
        Why.FORBIDDEN,
        Why.NO_CAPABILITY,
        Why.NO_SECRET,
        Why.NO_QUEUE,
        Why.ONLY_RUN,
    }
)


class UnservedSteps(Answer, kw_only=True):
    """What of a workflow would wait, because no live worker could take it."""

    unserved: Annotated[list[str], says("One sentence for each such step; one for all if no worker is alive.")]


async def unserved_steps(transactor: Transactor, plan: Plan, *, tenant: str) -> list[str]:
    """One sentence for each step of a plan that no live worker could take now; one for all if none is alive."""
    staff = await read_staff(transactor.store, tenant)
    said: dict[str, None] = {}
    cases = [
        plan.at(no) for one in plan.segments if one.queues is not None for no in range(one.first, one.first + one.width)
    ]
    hooks = [hook for case in cases if (hook := plan.undo_of(case.no)) is not None]
    for planned in (*plan.steps, *plan.undos.values(), *cases, *hooks):
        queue = plan.queues[planned.no] if planned.segment is not None else planned.queue
        spec = staff.specs.get(queue)
        if spec is None:
            continue
        wanted = WaitingStep("", plan.definition_id, planned.no)
        why, text, _ = judge(spec, queue, staff.workers, staff.former, staff.now, wanted)
        if why is Why.NO_WORKER:
            return ["no worker is alive: the run waits until one is started"]
        if why in UNSERVED:
            said[f"step {planned.name} would wait: {text}"] = None
    return list(said)


async def read_scene(transactor: Transactor, run_id: str, *, tenant: str, reader: Caller | None = None) -> Scene:
    """One run with all that could move it, as this person may move it."""
    store = transactor.store
    found = await store.read_run(tenant, validate.run_id(run_id))
    if found is None:
        raise NotFound(f"there is no run {run_id}")
    plan = await plan_for(transactor, found.run)
    steps, staff, aside = await asyncio.gather(
        store.read_steps(tenant, run_id), read_staff(store, tenant), store.list_quarantined(tenant)
    )
    progress = await read_progress(transactor, tenant, run_id, steps)
    waits = [step for step in steps if step.state in WAITS_FOR_PEOPLE]
    limited = [step for step in steps if step.ready_at is not None and plan.duties_on(plan.of(step))]
    case = await read_case(transactor, found, staff.now) if waits or limited else None
    return Scene(
        now=staff.now,
        run=found.run,
        plan=plan,
        steps=tuple(steps),
        specs=staff.specs,
        workers=staff.workers,
        former=staff.former,
        quarantined=next((one.reason for one in aside if one.run_id == run_id), None),
        progress={no: progress_words(said) for no, said in progress.items()},
        pauses=staff.pauses,
        pause=await read_pause(transactor, found.run),
        course=await course(transactor, found),
        slot=await read_wait(store, found.run),
        resources=await _lacking(store, tenant, plan, steps),
        limits=await lacking_places(store, tenant, run_id, plan, steps) if plan.has_limits else {},
        asked={} if case is None else {step.no: await asked_of(store, case, step, reader) for step in waits},
        ruled_out={} if case is None else {step.no: _ruled_out(case, step, staff) for step in limited},
    )


def _ruled_out(case: Case, step: Step, staff: Staff) -> dict[str, str]:
    """The owners of live workers that duties do not allow to execute this step, with the reasons."""
    owners = sorted({known.row.owner for known in staff.workers if known.row.owner and known.is_live(staff.now)})
    return {owner: said for owner in owners if (said := case.ruled_out(step.no, owner)) is not None}


async def _lacking(store: Store, tenant: str, plan: Plan, steps: Sequence[Step]) -> dict[int, str]:
    """The resources that ready steps lack, in words."""
    waiting = [step for step in steps if awaits_resources(step.ready_at)]
    if not waiting:
        return {}
    holds, pools = await store.resources.read_holds(tenant), await read_pools(store, tenant)
    said = {step.no: waits_for(resources_of(plan.of(step)), holds, pools) for step in waiting}
    return {no: words for no, words in said.items() if words is not None}


async def explain(
    transactor: Transactor, what: str, step: str | None, *, tenant: str, access: Access | None = None
) -> Explanation:
    """Explain a run or one of its steps, a worker by its id, or a queue by its name; with commands that the caller may
    give."""
    found = await _explain(transactor, what, step, tenant, None if access is None else _reader(access))
    return found if access is None else replace(found, causes=tuple(_allowed(access, one) for one in found.causes))


GIVEN = {
    "start": "start_idle",
    "slots": "slots.list",
    "resources": "resources.list",
    "limits": "limits.show",
    "reassign": "interventions.reassign",
    "quarantine": "release",
    "worker": "start_worker",
    "queues": "pauses.resume_queue",
}
"""The operation of each command of a cause that has another name."""


def _reader(access: Access) -> Caller:
    return access.caller()


def _allowed(access: Access, cause: Cause) -> Cause:
    """The cause without a command for which the key of the caller lacks a scope."""
    needed = OPERATIONS.get(GIVEN.get(cause.command[0], cause.command[0])) if cause.command else None
    lacking = sorted(one.value for one in needed or () if not access.may(one))
    if not lacking:
        return cause
    said = f"{cause.sentence} Your key lacks the scope {' and '.join(lacking)} for what moves it."
    return replace(cause, sentence=said, command=())


async def _explain(
    transactor: Transactor, what: str, step: str | None, tenant: str, reader: Caller | None
) -> Explanation:
    if not isinstance(what, str):
        raise InvalidInput(
            f"explain takes the id of a run or worker, or the name of a queue, not {type(what).__name__}."
        )
    try:
        scene = await read_scene(transactor, what, tenant=tenant, reader=reader)
    except NotFound:
        if step is not None:
            raise
    else:
        return explain_run(scene) if step is None else explain_step(scene, number_of(scene, step))
    staff = await read_staff(transactor.store, tenant)
    worker = await transactor.store.find_worker(tenant, what)
    if worker is not None:
        return await _worker(transactor.store, staff, worker)
    if any(spec.group == what for spec in staff.specs.values()):
        return await _queue(transactor.store, staff, what, tenant)
    raise NotFound(f"there is no run, worker or queue {inert_line(what, 100)}")


def number_of(scene: Scene, step: str) -> int:
    return step_names.number_of(scene.plan, scene.steps, f"run {scene.run.id}", step)


async def _worker(store: Store, staff: Staff, row: Worker) -> Explanation:
    known = next((one for one in staff.workers if one.row.no == row.no), Known(row, None))
    return explain_worker(known, staff.specs, await _backlog(store, staff.specs), staff.former, staff.now)


async def _queue(store: Store, staff: Staff, name: str, tenant: str) -> Explanation:
    specs = {number: spec for number, spec in staff.specs.items() if spec.group == name}
    return explain_queue(
        name, specs, await _backlog(store, specs), staff.workers, staff.former, staff.now, staff.pauses, tenant
    )


async def _backlog(store: Store, specs: dict[int, QueueSpec]) -> list[Backlog]:
    return await store.read_backlog(sorted(specs), counting.MOST)


def view(explained: Explanation) -> ExplanationView:
    """An explanation for those who read it. A command is a line for a shell."""
    course: Mapping[str, Any] = explained.course or {}
    return ExplanationView(
        subject=explained.subject,
        state=explained.state,
        stuck=explained.is_stuck,
        causes=[
            CauseView(
                code=cause.code,
                subject=cause.subject,
                sentence=cause.sentence,
                since=instant(cause.since),
                until=instant(cause.until),
                command=shlex.join(["stepkeep", *cause.command]) if cause.command else None,
                people=UNSET if cause.asked is None else cause.asked.people,
                pause=UNSET if cause.pause is None else cause.pause,
            )
            for cause in explained.causes
        ],
        continues=course.get("continues", UNSET),
        continued_by=course.get("continued_by", UNSET),
    )
