"""Policies with thousands of attempts: the judge follows each of them, also in dialects that show none."""

from __future__ import annotations

import pytest
from tests.conformance.logs import log_of
from tests.conformance.tellings import encoded, told
from tests.conformance.test_reenact import contract_of
from tests.kernel.driver import World, work

from stepkeep.conformance.verify import verify_lines
from stepkeep.conformance.words.replay import replay_lines
from stepkeep.dialects import registry
from stepkeep.kernel.definition import SECOND, Retry
from stepkeep.kernel.machine.states import Category
from stepkeep.operations.logs.log import canonical_machines


def patient(attempts: int) -> World:
    """This many attempts fail, and the next succeeds."""
    world = World(work("a", retry=Retry(max_attempts=10_000, max=SECOND, jitter=0.5)), watched=False)
    for _ in range(attempts):
        world.fail("a", Category.TRANSIENT, "503")
        world.later((world.row("a").due_at or 0) - world.now, "a")
    world.finish("a")
    return world


def test_a_thousand_retries_are_reenacted_with_their_jitter() -> None:
    world = patient(1_000)
    report = verify_lines(log_of(world), canonical_machines(), contract=contract_of(world))
    assert report.ok, report.findings[:3]


@pytest.mark.parametrize("name", registry.names())
def test_no_dialect_that_hides_retries_hides_too_many_for_the_judge(name: str) -> None:
    world = patient(1_000)
    judged = registry.judged(name)
    report = replay_lines(encoded(told(world, judged)), judged, contract=contract_of(world))
    assert report.ok, report.findings[:3]
