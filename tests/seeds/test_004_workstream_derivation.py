"""Seed 004, State Derivation from Tasks: the seed's own order, its slip mended, and the engine agreeing with it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import strategies as st
from tests.kernel.driver import World
from tests.kernel.walks import maybe, noise
from tests.seeds.workstream import RULE, task, workstream
from tests.suites import drawn

from stepkeep.dialects.projection import Seen
from stepkeep.dialects.workstream.machine import JUDGED
from stepkeep.dialects.workstream.planning import TASK_ENDED, TaskView, agrees, derive_workstream_state
from stepkeep.kernel.machine.journal import RUN_ENTITY
from stepkeep.kernel.machine.states import RUN_TERMINAL, RunState

T = TaskView
CRITICAL = T("failed", critical=True)


@pytest.mark.parametrize(
    ("tasks", "state"),
    [
        ([], "planned"),
        ([T("pending"), T("queued")], "ready"),
        ([T("running"), T("pending")], "executing"),
        ([T("running"), CRITICAL], "executing"),
        ([T("validating"), CRITICAL], "executing"),
        ([T("completed"), T("completed")], "validating"),
        ([CRITICAL, T("pending")], "failed"),
        ([CRITICAL, T("completed")], "failed"),
        ([T("failed"), T("pending")], "executing"),
        ([T("failed"), T("queued", started=True)], "executing"),
        ([T("queued", started=True), T("pending")], "executing"),
        ([T("retrying"), T("pending")], "executing"),
        ([T("completed"), T("queued")], "executing"),
        ([T("failed"), T("completed"), T("cancelled")], "failed"),
        ([T("cancelled"), T("cancelled")], "failed"),
    ],
)
def test_the_states_of_tasks_make_the_state_of_their_workstream(tasks: list[TaskView], state: str) -> None:
    """`derive_workstream_state`; design section 4: nothing left that can move has ended."""
    assert derive_workstream_state(tasks) == state
    assert derive_workstream_state(reversed(tasks)) == state, "the order of the tasks means nothing"
    assert derive_workstream_state(tasks, user_cancelled=True) == "cancelled"


def test_a_failure_that_is_not_critical_is_told_from_one_that_is() -> None:
    """The seed's snippet asks this of a variable that does not exist."""
    waiting = T("pending")
    assert derive_workstream_state([T("failed"), waiting]) != derive_workstream_state([CRITICAL, waiting])


# -- against the engine ------------------------------------------------------------------------------------------------
def world_of(random: Random) -> World:
    """A run of a random workstream, perhaps not started yet."""
    names = [f"t{place}" for place in range(random.randint(1, 5))]
    tasks = []
    for place, name in enumerate(names):
        fields: dict[str, Any] = {"critical": maybe(random, 0.4), "max_retries": random.randint(0, 2)}
        if maybe(random, 0.4):
            fields["post"] = [RULE]
        tasks.append(task(name, *(one for one in names[:place] if maybe(random, 0.4)), **fields))
    final = {"post_execution": [f"${{{{ steps.{names[0]}.output.n == 1 }}}}"]} if maybe(random, 0.4) else {}
    definition = workstream(*tasks, max_duration_seconds=random.choice((20, 200)), validation_rules=final)
    return World(
        *definition.steps,
        start=maybe(random, 0.9),
        watched=False,
        timeout=definition.timeout,
        on_failure=definition.on_failure,
        rules=definition.rules,
        dialect=definition.dialect,
    )


class Onlooker:
    """Sees a run through the dialect, hop by hop."""

    def __init__(self, world: World) -> None:
        self.world, self.read = world, 0
        self.projection = JUDGED.projection()
        self.workstream = ""
        self.tasks: dict[str, TaskView] = {}

    def look(self) -> str:
        """What the tasks make of their workstream by now."""
        for hop in self.world.hops[self.read :]:
            planned = None if hop.no == RUN_ENTITY else self.world.plan.at(hop.no)
            seen = (
                Seen("run", "r", hop.source, hop.trigger, hop.target)
                if planned is None
                else Seen("step", planned.name, hop.source, hop.trigger, hop.target, planned.phase)
            )
            for shown in self.projection.feed(seen):
                if shown.kind == "run":
                    self.workstream = shown.target
                    continue
                before = self.tasks.get(shown.name, T("pending"))
                critical = self.world.plan.steps[self.world.no(shown.name)].on_failure == "abort"
                started = before.started or shown.target == "running"
                self.tasks[shown.name] = T(shown.target, critical, started)
        self.read = len(self.world.hops)
        return derive_workstream_state(self.tasks.values(), user_cancelled=self.workstream == "cancelled")


@drawn(25, 150, random=st.randoms(use_true_random=False))
def test_the_engine_and_the_derivation_agree_after_every_transaction(random: Random) -> None:
    """Workstream invariants 1, 2 and 3, over random lives: retries, losses, timeouts, cancels, hand-backs."""
    world = world_of(random)
    onlooker = Onlooker(world)
    for _ in range(60):
        derived = onlooker.look()
        states = {name: view.state for name, view in onlooker.tasks.items()}
        # A paused run settles nothing; the seed has no word for that.
        waits = world.run.state is RunState.PAUSED and set(states.values()) <= TASK_ENDED
        agreed = onlooker.workstream == "executing" if waits else agrees(derived, onlooker.workstream)
        assert agreed, (derived, onlooker.workstream, onlooker.tasks)
        if onlooker.workstream in ("completed", "failed", "cancelled"):
            assert set(states.values()) <= TASK_ENDED
        if onlooker.workstream == "completed":
            assert set(states.values()) == {"completed"}
        if world.run.state in RUN_TERMINAL:
            return
        events, claimer = noise(world, random)
        world.send(*events, claimer=claimer)


def test_the_random_lives_meet_every_end_and_every_state() -> None:
    """The property above would be empty if its lives never got anywhere."""
    ends: set[str] = set()
    seen: set[str] = set()
    for seed in range(150):
        random = Random(seed)
        world = world_of(random)
        onlooker = Onlooker(world)
        for _ in range(60):
            onlooker.look()
            ends.add(onlooker.workstream)
            seen |= {view.state for view in onlooker.tasks.values()}
            if world.run.state in RUN_TERMINAL:
                break
            events, claimer = noise(world, random)
            world.send(*events, claimer=claimer)
    assert ends == set(JUDGED.run.states)
    assert seen == set(JUDGED.step.states)


def test_disagreement_is_seen() -> None:
    assert not agrees("failed", "executing")
    assert not agrees("executing", "ready")
    assert not agrees("ready", "executing")
