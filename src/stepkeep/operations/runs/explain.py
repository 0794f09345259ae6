"""Why a run, a step, a queue or a worker does not move: a chain of causes, each with the command that moves it.

Pure: from rows, workers and a time to a value. It reads no database and changes nothing. A run is stuck only if this is
proved: none of its rows has a claim, a lease, a timer or a declared wait. `diagnosis` collects the rows and calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from stepkeep.kernel.decide.resources import ready_since
from stepkeep.kernel.decide.waits import is_several
from stepkeep.kernel.definition import QueueSpec
from stepkeep.kernel.machine.rows import Note, Run, Step, is_exhausted, is_unfit
from stepkeep.kernel.machine.states import RUN_TERMINAL, STEP_TERMINAL, STEP_WAITING, Phase, RunState, StepState
from stepkeep.kernel.people.gates import gate_terms, holding_rule
from stepkeep.kernel.plan import Plan, PlannedStep
from stepkeep.operations.continuation.pausing import Pause
from stepkeep.operations.instants import instant
from stepkeep.operations.limits.pauses import NONE, Pauses
from stepkeep.operations.people.cases import asked_people
from stepkeep.operations.people.step_people import StepPeople, in_words
from stepkeep.operations.remote.services import Known, Service, WaitingStep
from stepkeep.operations.runs.causes import (
    ATTENTION,
    SECOND,
    Cause,
    Explanation,
    PausedBy,
    Why,
    by,
    listed,
    span,
    until,
)
from stepkeep.operations.runs.staffing import judge, pause_of, queue_paused, start_command
from stepkeep.operations.runs.views import case_taken, element_counts, is_sleep, waits_until
from stepkeep.store.rows import SlotRow

LATE = 5 * SECOND
"""A timer that is overdue by so much was not swept: a live worker sweeps every second."""


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """One run with all that could move it. `former` are the offers of workers that are gone, newest first.
    `progress` has what the handlers of running steps say, in words. `asked` has the people whom waiting steps ask."""

    now: int
    run: Run
    plan: Plan
    steps: tuple[Step, ...]
    specs: Mapping[int, QueueSpec]
    workers: tuple[Known, ...]
    former: tuple[Service, ...] = ()
    quarantined: str | None = None
    progress: Mapping[int, str] = {}
    asked: Mapping[int, StepPeople] = {}
    pause: Pause | None = None
    pauses: Pauses = NONE
    course: Mapping[str, Any] | None = None
    slot: tuple[SlotRow, str] | None = None
    """The execution slot that the run waits for, and why it has none, in words."""
    resources: Mapping[int, str] = {}
    """The resources that ready steps lack, and which steps hold them, in words."""
    limits: Mapping[int, tuple[str, str]] = {}
    """Of steps that are parked under a key: the name of the limit, and who holds the key, in words."""
    ruled_out: Mapping[int, Mapping[str, str]] = {}
    """The owners of live workers that duties rule out for ready steps, with the reasons."""


def explain_run(scene: Scene) -> Explanation:
    """Why a run has not ended."""
    run = scene.run
    return Explanation(subject=f"run {run.id}", state=run.state, causes=tuple(_of_run(scene)), course=scene.course)


def _of_run(scene: Scene) -> Iterable[Cause]:
    run, subject = scene.run, f"run {scene.run.id}"
    if run.state in RUN_TERMINAL:
        verb = "has" if run.state in (RunState.SUCCEEDED, RunState.FAILED) else "is"
        said = f"{subject} {verb} {run.state.replace('_', ' ')}"
        error = f": {run.error}" if run.error else ""
        return [Cause(code=Why.FINISHED, subject=subject, sentence=f"{said}{error}.", since=run.ended_at)]
    if scene.quarantined is not None:
        said = f"{subject} is quarantined: {scene.quarantined}."
        release = ("quarantine", "--release", run.id, "--reason", "TEXT")
        return [Cause(code=Why.QUARANTINED, subject=subject, sentence=said, command=release)]
    if run.state is RunState.IDLE and run.due_at is not None and scene.now - run.due_at <= LATE:
        said = f"{subject} starts {until(scene.now, run.due_at)}."
        command = ("start", "--run", run.id)
        return [Cause(code=Why.SCHEDULED, subject=subject, sentence=said, until=run.due_at, command=command)]
    if run.state is RunState.IDLE and run.due_at is not None:
        late = span(scene.now - run.due_at)
        said = f"{subject} was to start {late} ago; timers are swept by workers."
        command = ("start", "--run", run.id)
        return [Cause(code=Why.NOT_STARTED, subject=subject, sentence=said, since=run.due_at, command=command)]
    if run.state is RunState.IDLE:
        said = f"{subject} has not been started."
        return [Cause(code=Why.NOT_STARTED, subject=subject, sentence=said, command=("start", "--run", run.id))]
    if run.state is RunState.QUEUED and scene.slot is not None:
        return [_awaits_slot(subject, *scene.slot)]
    if is_stuck(run, scene.steps):
        return [_stuck(scene)]
    found = [cause for step in scene.steps if (cause := _of_step(scene, step)) is not None]
    if run.state is RunState.PAUSED:
        found.append(_paused(scene))
    if run.state is RunState.STOPPING:
        left = until(scene.now, run.due_at)
        said = f"{subject} stops ({run.cause}); steps that still run have until then: {left}."
        found.append(Cause(code=Why.STOPPING, subject=subject, sentence=said, until=run.due_at))
    return sorted(found, key=lambda cause: ATTENTION[cause.code])


def _awaits_slot(subject: str, row: SlotRow, why: str) -> Cause:
    said = f"{subject} waits for {why}."
    return Cause(code=Why.SLOT, subject=subject, sentence=said, since=row.asked_at, command=("slots", "list"))


def _paused(scene: Scene) -> Cause:
    subject = f"run {scene.run.id}"
    pause = scene.pause
    whose = "" if pause is None else f" by {pause.by} since {instant(pause.at)}"
    why = f": {pause.reason}" if pause is not None and pause.reason else ""
    said = f"{subject} is paused{whose}{why}. Nothing of it is claimed until it is resumed."
    since = None if pause is None else pause.at
    resume = ("resume", scene.run.id)
    return Cause(
        code=Why.PAUSED, subject=subject, sentence=said, since=since, command=resume, pause=PausedBy(scope="run")
    )


def is_stuck(run: Run, steps: Iterable[Step]) -> bool:
    """Whether no transition is enabled: no start, resumption, claim, report, timer, decision or message can
    change the run.

    A run's own timeout does not count, because it would hide a defect; the end of its grace period does.
    """
    if run.state in RUN_TERMINAL or run.state in (RunState.IDLE, RunState.PAUSED):
        return False
    if run.state is RunState.STOPPING and run.due_at is not None:
        return False
    return not any(step.ready_at is not None or step.due_at is not None or step.state in STEP_WAITING for step in steps)


def _stuck(scene: Scene) -> Cause:
    subject = f"run {scene.run.id}"
    said = (
        f"{subject} is stuck: no step can be claimed, none is leased, no timer runs, and none waits for a decision "
        "or a message. This is a defect; please report it. Only a cancel ends the run."
    )
    return Cause(
        code=Why.STUCK, subject=subject, sentence=said, since=scene.run.moved_at, command=("cancel", scene.run.id)
    )


# -- steps -----------------------------------------------------------------------------------------------------------
def explain_step(scene: Scene, no: int) -> Explanation:
    """Why a step has not ended: the chain over its dependencies, from the step itself to where it ends."""
    rows = {step.no: step for step in scene.steps}
    name = scene.plan.at(no).name
    subject = f"step {name} of run {scene.run.id}"
    row = rows.get(no)
    if row is None:
        said = f"{name} belongs to a rollback that has not begun."
        return Explanation(
            subject=subject, state="pending", causes=(Cause(code=Why.OTHER, subject=name, sentence=said),)
        )
    if row.state in STEP_TERMINAL:
        error = f": {row.error}" if row.error else ""
        adopted = None if row.note is None else row.note.adopted
        taken = "" if adopted is None else f" It was adopted: run {adopted.run} executed it."
        said = f"{name} has ended as {row.state}{error}.{taken}"
        return Explanation(
            subject=subject, state=row.state, causes=(Cause(code=Why.FINISHED, subject=name, sentence=said),)
        )
    whole = tuple(_of_run(scene))
    if scene.slot is not None and row.state is StepState.PENDING:
        return Explanation(subject=subject, state=row.state, causes=whole)
    first = next(iter(whole), None)
    if first is not None and first.code in (Why.QUARANTINED, Why.NOT_STARTED, Why.SCHEDULED, Why.STUCK):
        return Explanation(subject=subject, state=row.state, causes=(first,))
    return Explanation(subject=subject, state=row.state, causes=tuple(_chain(scene, rows, no)))


def _chain(scene: Scene, rows: Mapping[int, Step], no: int) -> Iterable[Cause]:
    """Links of dependencies, then the causes at their ends. Each step is visited once."""
    ends: list[Cause] = []
    links: list[Cause] = []
    seen, todo = {no}, [no]
    while todo:
        at = todo.pop(0)
        planned, row = scene.plan.at(at), rows[at]
        cause = _of_step(scene, row)
        if cause is not None:
            ends.append(cause)
            continue
        open_before = [number for number in _before(scene, rows, planned) if rows[number].state not in STEP_TERMINAL]
        if open_before:
            names = listed([scene.plan.at(number).name for number in open_before])
            links.append(
                Cause(code=Why.DEPENDENCY, subject=planned.name, sentence=f"{planned.name} waits for {names}.")
            )
        todo += [number for number in open_before if number not in seen]
        seen.update(open_before)
    return [*links, *sorted(ends, key=lambda cause: ATTENTION[cause.code])]


def _before(scene: Scene, rows: Mapping[int, Step], planned: PlannedStep) -> list[int]:
    """The steps that this one comes after: its dependencies, or the hook before it in a rollback."""
    if planned.phase is Phase.UNDO:
        return [no for no, row in rows.items() if row.note is not None and row.note.next == planned.no]
    numbers = [scene.plan.numbers[edge.step] for edge in planned.definition.depends_on]
    return [no for no in numbers if no in rows]


def _of_step(scene: Scene, step: Step) -> Cause | None:
    """The cause at a step that could move; None for one that has ended or waits for other steps."""
    if step.state in STEP_TERMINAL or step.state is StepState.PENDING:
        return None
    if step.ready_at is not None and scene.run.state is RunState.PAUSED:
        return _held_back(scene, step)
    if step.ready_at is not None and step.no in scene.limits:
        return _awaits_place(scene, step)
    if step.ready_at is not None and step.no in scene.resources:
        return _awaits_resources(scene, step)
    if step.ready_at is not None:
        return _unclaimed(scene, step)
    if step.worker is not None:
        return _leased(scene, step)
    return TELL.get(step.state, _other)(scene, step, scene.plan.of(step))


def _awaits_place(scene: Scene, step: Step) -> Cause:
    name, (limit, said) = scene.plan.of(step).name, scene.limits[step.no]
    since = None if step.ready_at is None else ready_since(step.ready_at)
    sentence = f"{name} waits for {said}."
    return Cause(code=Why.LIMIT, subject=name, sentence=sentence, since=since, command=("limits", "show", limit))


def _awaits_resources(scene: Scene, step: Step) -> Cause:
    name = scene.plan.of(step).name
    said = f"{name} waits for {scene.resources[step.no]}."
    since = None if step.ready_at is None else ready_since(step.ready_at)
    return Cause(code=Why.RESOURCE, subject=name, sentence=said, since=since, command=("resources", "list"))


def _other(scene: Scene, step: Step, planned: PlannedStep) -> Cause:
    ends = waits_until(scene.run, step)
    said = f"{planned.name} is {step.state.replace('_', ' ')}{by(scene.now, ends)}."
    return Cause(code=Why.OTHER, subject=planned.name, sentence=said, until=ends)


def _retrying(scene: Scene, step: Step, planned: PlannedStep) -> Cause:
    name, due = planned.name, step.due_at or scene.now
    error = f"{step.category}: {step.error}" if step.error else str(step.category or "a failure")
    if scene.now - due > LATE:
        return _unswept(scene, planned, step, f"its next attempt was due {span(scene.now - due)} ago")
    used = step.attempts - (step.note.spent if step.note is not None else 0)
    tried = f"{used} of {planned.retry.max_attempts} attempts"
    said = f"{name} is tried again {until(scene.now, due)}, after {tried} ({error})."
    return Cause(code=Why.RETRY, subject=name, sentence=said, until=due, command=("wait", scene.run.id))


def _approval(scene: Scene, step: Step, planned: PlannedStep) -> Cause:
    if is_exhausted(step):
        return _held(scene, step, planned)
    gate = gate_terms(step, planned)
    people = "" if gate is None else asked_people(gate, step).get("of", "")
    whose = f" by {people}" if people else ""
    ends = waits_until(scene.run, step)
    said = f"{planned.name} waits for approval{whose}{by(scene.now, ends)}."
    asked = scene.asked.get(step.no)
    if asked is not None and gate is not None and gate.quorum > 1:
        said += f" It needs {asked.needs} more of {gate.quorum} decisions."
    if (rule := holding_rule(step)) is not None:
        said += f" It is held by {rule}."
    due = None if step.note is None or step.note.opening is None else step.note.opening.deadline
    if due is not None and due <= scene.now:
        if scene.now - due > LATE:
            return _unswept(scene, planned, step, f"its deadline passed {span(scene.now - due)} ago")
        said = f"{planned.name} waited for approval until its deadline, which has passed."
        return Cause(code=Why.SOON, subject=planned.name, sentence=said, until=due, command=("wait", scene.run.id))
    said += in_words(asked, "decide it")
    if asked is not None and asked.takes_nobody:
        ways = " An operator who did not ask for the run names other approvers, or fails it; a cancel ends the run."
        other = ("reassign", scene.run.id, planned.name, "--to", "NAME", "--reason", "TEXT")
        ends_it = ("cancel", scene.run.id) if asked.reader_asked else other
        return Cause(
            code=Why.NOBODY, subject=planned.name, sentence=said + ways, until=ends, command=ends_it, asked=asked
        )
    command = _as_allowed(asked, ("approve", scene.run.id, planned.name))
    return Cause(code=Why.APPROVAL, subject=planned.name, sentence=said, until=ends, command=command, asked=asked)


def _as_allowed(asked: StepPeople | None, command: tuple[str, ...]) -> tuple[str, ...]:
    """The command, if the reader may act; in the name of a person who may, where names are taken; or none."""
    words = () if asked is None else asked.reader
    return () if words is None else (*command, *words)


def _asleep(scene: Scene, step: Step, planned: PlannedStep) -> Cause:
    name, due = planned.name, step.due_at or scene.now
    if scene.now - due > LATE:
        return _unswept(scene, planned, step, f"its sleep ended {span(scene.now - due)} ago")
    said = f"{name} sleeps until {instant(due)}: it goes on {until(scene.now, due)}."
    return Cause(code=Why.SLEEP, subject=name, sentence=said, until=due, command=("wait", scene.run.id))


def _held(scene: Scene, step: Step, planned: PlannedStep) -> Cause:
    used = step.attempts - (step.note.spent if step.note is not None else 0)
    tried = "1 attempt" if used == 1 else f"{used} attempts"
    if planned.retry.counts_losses is False and step.losses:
        tried += f" and {step.losses} lost workers" if step.losses > 1 else " and a lost worker"
    ways = "retried, completed or failed" if planned.phase is Phase.UNDO else "retried, skipped or failed"
    said = f"{planned.name} holds: no attempt is left after {tried} ({step.category}: {step.error})."
    if is_unfit(step):
        said = f"{planned.name} holds: {step.error} It goes on when a worker has other code for it."
    said += f" It is {ways} by a decision."
    asked = scene.asked.get(step.no)
    command = _as_allowed(asked, ("decide", scene.run.id, planned.name, "retry"))
    return Cause(
        code=Why.DECISION,
        subject=planned.name,
        sentence=said + in_words(asked, "decide it"),
        until=waits_until(scene.run, step),
        command=command,
        asked=asked,
    )


def _event(scene: Scene, step: Step, planned: PlannedStep) -> Cause:
    if planned.kind.sleeps:
        return _asleep(scene, step, planned)
    event = step.note.event if step.note is not None and step.note.event else "NAME"
    ends = waits_until(scene.run, step)
    said = f"{planned.name} waits for the message {event}{by(scene.now, ends)}.{_taken(step, planned)}"
    command = ("send", scene.run.id, event, "--payload", "{}")
    return Cause(
        code=Why.EVENT, subject=planned.name, sentence=said, until=waits_until(scene.run, step), command=command
    )


def _taken(step: Step, planned: PlannedStep) -> str:
    """How many messages a wait for several has taken."""
    note = step.note or Note()
    wait = planned.kind.wait or note.takes
    if wait is None or not is_several(wait):
        return ""
    of = "" if wait.count is msgspec.UNSET else f" of {wait.count}"
    return f" It has taken {len(note.gathered)}{of}."


def _completion(scene: Scene, step: Step, planned: PlannedStep) -> Cause:
    ends = waits_until(scene.run, step)
    said = f"{planned.name} waits to be completed by hand, with its token{by(scene.now, ends)}."
    asked = scene.asked.get(step.no)
    given = ("--token", "TOKEN", "--outcome", "Succeeded")
    command = _as_allowed(asked, ("complete", scene.run.id, planned.name, *given))
    return Cause(
        code=Why.COMPLETION,
        subject=planned.name,
        sentence=said + in_words(asked, "complete it"),
        until=ends,
        command=command,
        asked=asked,
    )


def _elements(scene: Scene, step: Step, planned: PlannedStep) -> Cause:
    if planned.kind.growth is None:
        return _children(scene, step, planned)
    told, ends = element_counts(step), waits_until(scene.run, step)
    if (case := case_taken(step, planned)) is not None:
        said = f"{planned.name} took {case}, and waits for it"
    elif is_sleep(scene.plan, step):
        return _asleep(scene, step, planned)
    else:
        said = f"{planned.name} waits for its elements: {told['settled']} of {told['elements']} have settled"
        said += f", {told['failed']} of them failed" if told["failed"] else ""
    said += f"{by(scene.now, ends)}."
    return Cause(code=Why.OTHER, subject=planned.name, sentence=said, until=ends, command=("wait", scene.run.id))


def _children(scene: Scene, step: Step, planned: PlannedStep) -> Cause:
    ends, child = waits_until(scene.run, step), planned.kind.child
    what = "its children" if child is None else f"a run of {child.workflow} (version {child.version})"
    if planned.kind.undoes_child:
        what = f"the rollback of run {None if step.note is None else step.note.undoes}"
    said = f"{planned.name} waits for {what}{by(scene.now, ends)}."
    child_id = None if step.note is None else step.note.child
    command = ("explain", child_id) if child_id is not None else ("show", scene.run.id)
    return Cause(code=Why.CHILDREN, subject=planned.name, sentence=said, until=ends, command=command)


TELL: Mapping[StepState, Callable[[Scene, Step, PlannedStep], Cause]] = {
    StepState.RETRYING: _retrying,
    StepState.AWAITING_APPROVAL: _approval,
    StepState.AWAITING_EVENT: _event,
    StepState.AWAITING_COMPLETION: _completion,
    StepState.AWAITING_CHILDREN: _elements,
}
"""How a step is told that no worker holds and none may claim. A state that is not here is told by its name."""


def _leased(scene: Scene, step: Step) -> Cause:
    planned, now = scene.plan.of(step), scene.now
    name, due = planned.name, step.due_at or now
    holder = next((known for known in scene.workers if known.row.no == step.worker), None)
    if holder is not None and not holder.is_silent(now):
        timeout = None if step.claimed_at is None else step.claimed_at + planned.timeout
        said = f"{name} has run for {span(now - (step.claimed_at or now))} at worker {holder.row.id}"
        far = scene.progress.get(step.no)
        said += f": {far}." if far else "."
        wait = ("wait", scene.run.id)
        return Cause(code=Why.RUNNING, subject=name, sentence=said, since=step.claimed_at, until=timeout, command=wait)
    gone = (
        f"worker {holder.row.id}, which was last heard {span(now - holder.row.heard_at)} ago"
        if holder is not None
        else "a worker that is gone"
    )
    lease = f"its lease ends {until(now, due)}" if due > now else f"its lease ended {span(now - due)} ago"
    said = f"{name} is leased to {gone}; {lease}, and then another worker takes it."
    command: tuple[str, ...] = ("wait", scene.run.id)
    if not any(known.is_live(now) for known in scene.workers):
        said += " No other worker is alive."
        command = _worker_command(scene, scene.specs.get(step.queue))
    return Cause(code=Why.DEAD_WORKER, subject=name, sentence=said, since=step.claimed_at, until=due, command=command)


def _unswept(scene: Scene, planned: PlannedStep, step: Step, what: str) -> Cause:
    name = planned.name
    if any(known.is_live(scene.now) for known in scene.workers):
        said = f"{name}: {what}, and live workers have not swept it. This is a defect; please report it."
        return Cause(code=Why.LATE_TIMER, subject=name, sentence=said, since=step.due_at, command=("status",))
    said = f"{name}: {what}; timers are swept by workers, and none is alive."
    command = _worker_command(scene, scene.specs.get(step.queue))
    return Cause(code=Why.NO_WORKER, subject=name, sentence=said, since=step.due_at, command=command)


def _held_back(scene: Scene, step: Step) -> Cause:
    name = scene.plan.of(step).name
    said = f"{name} is ready, and is not claimed while run {scene.run.id} is paused."
    resume, pause = ("resume", scene.run.id), PausedBy(scope="run")
    return Cause(code=Why.PAUSED, subject=name, sentence=said, command=resume, pause=pause)


def _unclaimed(scene: Scene, step: Step) -> Cause:
    name = scene.plan.of(step).name
    since = scene.now if step.ready_at is None else ready_since(step.ready_at)
    said = f"{name} has been ready for {span(scene.now - since)}"
    spec = scene.specs.get(step.queue)
    if spec is None:
        text = f"{said}, but its queue ({step.queue}) is not in the database. This is a defect; please report it."
        return Cause(code=Why.STUCK, subject=name, sentence=text, since=since)
    if (paused := queue_paused(spec, scene.pauses)) is not None:
        why, text, command = paused
        pause = pause_of(spec, scene.pauses)
        return Cause(code=why, subject=name, sentence=f"{said}; {text}.", since=since, command=command, pause=pause)
    wanted, barred = WaitingStep(scene.run.id, scene.plan.definition_id, step.no), scene.ruled_out.get(step.no, {})
    others = tuple([known for known in scene.workers if known.row.owner not in barred])
    why, text, command = judge(spec, step.queue, others, scene.former, scene.now, wanted, scene.run.tenant)
    if barred:
        said += f"; workers of {listed([f'{owner} are passed over: {reason}' for owner, reason in barred.items()])}"
    if barred and not any(known.is_live(scene.now) for known in others):
        text = "it needs a worker of another owner"
        why, command = Why.DUTY, (*_worker_command(scene, spec), "--key-file", "FILE")
    return Cause(code=why, subject=name, sentence=f"{said}; {text}.", since=since, command=command)


def _worker_command(scene: Scene, spec: QueueSpec | None) -> tuple[str, ...]:
    offers = [*(known.service for known in scene.workers if known.service), *scene.former]
    return start_command(spec, offers, scene.run.tenant)
