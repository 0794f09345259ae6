"""The analysis behind `explain`, over rows alone: each unfinished run has a cause; stuck is said only if proved."""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from stepkeep.kernel.definition import QueueSpec
from stepkeep.kernel.machine.rows import Step
from stepkeep.kernel.machine.states import RUN_TERMINAL, STEP_TERMINAL, RunState, StepState, WorkerState
from stepkeep.operations.remote.services import Known, Lack, Service
from stepkeep.operations.runs.causes import FAULTS, Why
from stepkeep.operations.runs.explain import Scene, explain_run, explain_step
from stepkeep.operations.runs.staffing import judge
from stepkeep.operations.runs.status import worker_view
from stepkeep.store.rows import SlotRow
from tests.kernel.driver import World
from tests.kernel.walks import live, world_of
from tests.store.values import a_worker

SECOND = 1_000_000
NOW = 1_000 * SECOND
ASKED = QueueSpec(kind="python", name="mail.send", capabilities=("gpu",), group="slow")


def scene_of(world: World, **given: object) -> Scene:
    queues = {step.queue for step in world.rows.values()}
    specs = {queue: QueueSpec(kind="python", name="work") for queue in queues if queue}
    rows = tuple(world.rows.values())
    given = {"slot": (a_slot(world), "a slot of workflow w: 3 of 3 run")} | given if awaits_slot(world) else given
    return Scene(now=world.now, run=world.run, plan=world.plan, steps=rows, specs=specs, workers=(), **given)  # type: ignore[arg-type]


def awaits_slot(world: World) -> bool:
    """Whether the run waits for an execution slot: its first steps count it as one more unmet dependency."""
    if world.run.state not in (RunState.QUEUED, RunState.PAUSED) or world.run.moving:
        return False
    return any(row.state is StepState.PENDING and row.unmet > world.plan.at(no).unmet for no, row in world.rows.items())


def a_slot(world: World) -> SlotRow:
    asked = world.run.moved_at
    return SlotRow(tenant="t", run_id=world.run.id, workflow="w", most=3, priority=0, asked_at=asked)


def test_every_unfinished_run_of_any_life_has_a_cause_and_none_is_stuck() -> None:
    seen: set[Why] = set()
    for seed in range(9_000, 9_200):
        world = world_of(Random(seed))
        live(world, Random(seed), seed % 40)
        explained = explain_run(scene_of(world))
        assert not explained.is_stuck, seed
        assert explained.causes, seed
        seen |= {cause.code for cause in explained.causes}
        for no, step in world.rows.items():
            chain = explain_step(scene_of(world), no)
            assert chain.causes, (seed, no)
            assert (chain.causes[-1].code is Why.FINISHED) == (step.state in STEP_TERMINAL)
    assert seen >= {Why.NO_WORKER, Why.DEAD_WORKER, Why.APPROVAL, Why.EVENT, Why.FINISHED, Why.NOT_STARTED, Why.SLOT}


def test_a_step_of_a_run_that_waits_for_a_slot_tells_of_the_slot_or_of_the_pause() -> None:
    seen = set()
    for seed in range(9_000, 9_400):
        world = world_of(Random(seed))
        live(world, Random(seed), seed % 5)
        if awaits_slot(world):
            scene = scene_of(world)
            told = {explain_step(scene, no).causes for no, row in world.rows.items() if row.state is StepState.PENDING}
            assert told == {explain_run(scene).causes}, seed
            seen |= {cause.code for causes in told for cause in causes}
    assert seen == {Why.SLOT, Why.PAUSED}


def asleep(step: Step) -> Step:
    """The same step without anything that could ever change it, as only a defect would leave it."""
    if step.state in STEP_TERMINAL:
        return step
    nothing = {"ready_at": None, "due_at": None, "worker": None, "claimed_at": None}
    return replace(step, state=StepState.PENDING, **nothing)


def test_a_run_is_stuck_exactly_if_no_transition_is_enabled() -> None:
    proved = 0
    for seed in range(9_000, 9_100):
        world = world_of(Random(seed))
        live(world, Random(seed), seed % 40)
        if world.run.state in RUN_TERMINAL | {RunState.IDLE, RunState.STOPPING, RunState.PAUSED}:
            continue
        scene = scene_of(world)
        broken = replace(scene, steps=tuple(asleep(step) for step in scene.steps), slot=None)
        explained = explain_run(broken)
        assert explained.is_stuck
        assert explained.causes[0].command == ("cancel", world.run.id)
        proved += 1
        for step in scene.steps:
            if step.state in STEP_TERMINAL or step.state is StepState.PENDING:
                continue
            # One enabled transition is enough.
            rest = tuple(step if row.no == step.no else row for row in broken.steps)
            assert not explain_run(replace(scene, steps=rest)).is_stuck
    assert proved > 20


def test_a_quarantined_run_is_told_before_anything_else() -> None:
    world = world_of(Random(9_002))
    live(world, Random(9_002), 3)
    [cause] = explain_run(scene_of(world, quarantined="looked at by ann")).causes
    assert cause.code is Why.QUARANTINED
    assert "--release" in cause.command


def a_known(name: str = "w-1", heard_at: int = NOW, state: WorkerState = WorkerState.IDLE, **offer: object) -> Known:
    given = {"handlers": ("mail.send",), "groups": ("slow",), "places": 2, "free": 2, "free_threads": 2, **offer}
    row = replace(a_worker(name, state), heard_at=heard_at, capabilities=("gpu",), queues=())
    return Known(row, Service(**given))  # type: ignore[arg-type]


def test_what_a_worker_lacks_is_told_in_the_order_in_which_it_helps() -> None:
    assert a_known().lacks(ASKED, 1) == ()
    other = replace(a_known(handlers=(), groups=("fast",)), row=replace(a_known().row, capabilities=()))
    assert other.lacks(ASKED, 1) == (Lack.HANDLER, Lack.CAPABILITY, Lack.QUEUE)
    assert judge(ASKED, 1, [other], (), NOW)[0] is Why.NO_HANDLER
    # Of several, the worker that comes closest is told.
    assert judge(ASKED, 1, [other, a_known("w-2", groups=("fast",))], (), NOW)[0] is Why.NO_QUEUE


def test_a_worker_that_could_take_a_step_is_never_a_fault() -> None:
    for load in ({"free": 1, "free_threads": 1}, {"free": 5, "free_threads": 0, "coroutines": ("mail.send",)}):
        why, _, command = judge(ASKED, 1, [a_known(**load)], (), NOW)
        assert why is Why.SOON
        assert why not in FAULTS
        assert command == ()
    assert judge(ASKED, 1, [a_known(free_threads=0)], (), NOW)[0] is Why.FULL
    assert judge(ASKED, 1, [a_known(free=0)], (), NOW)[0] is Why.FULL


def test_a_silent_or_draining_worker_serves_nothing() -> None:
    for known in (a_known(heard_at=NOW - 31 * SECOND), a_known(state=WorkerState.DRAINING)):
        why, said, command = judge(ASKED, 1, [known], (), NOW)
        assert why is Why.NO_WORKER
        assert command == ("worker", "--app", "MODULE_OR_FILE.py", "--capability", "gpu", "--queue", "slow")
    assert "no worker is alive" in said


def test_the_command_names_the_code_that_a_worker_had_which_is_gone() -> None:
    gone = Service(handlers=("mail.send",), apps=("mails.py",))
    _, _, command = judge(ASKED, 1, (), (gone,), NOW)
    assert command[:3] == ("worker", "--app", "mails.py")


def test_a_worker_that_was_shut_down_is_shown_without_what_it_held_before() -> None:
    held = {"held": 3, "free": 1}
    assert worker_view(a_known(state=WorkerState.BUSY, **held), NOW)["held"] == 3
    assert worker_view(a_known(state=WorkerState.SHUTDOWN, **held), NOW)["held"] == 0
