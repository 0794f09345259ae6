"""The judge follows the calls that a flow cancels: its report names them, and they end in the same entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.conformance.logs import log_of
from tests.kernel.driver import World
from tests.kernel.test_flow_calls import called, flow, suspend

from stepkeep.conformance.encoding import compact, parse
from stepkeep.conformance.verify import verify_lines
from stepkeep.kernel.machine.outcomes import Suspended
from stepkeep.operations.logs.log import canonical_machines
from stepkeep_lab.forgeries.seals import resealed

Line = dict[str, Any]


def raced() -> World:
    """Three calls: one ends, the flow cancels the second, and awaits the third."""
    world = flow()
    suspend(world, called(), called(), called())
    world.finish("flow[0]")
    world.claim("flow")
    world.report("flow", Suspended(seen=1, cancels=(1,)))
    return world


def judged(world: World, forge: Callable[[Any], None] = lambda cancels: None) -> list[str]:
    """What the judge says of a log whose places of cancelled calls are forged."""
    lines: list[Line] = [parse(line) for line in log_of(world)]
    for line in lines:
        grown = (line["metadata"].get("detail") or {}).get("plan_grown", {}).get("flow", {})
        if "cancels" in grown:
            forge(grown["cancels"])
    sealed = [compact(line).encode() for line in resealed(lines, canonical=True)]
    return [one.message for one in verify_lines(sealed, canonical_machines()).findings]


def test_a_flow_that_cancels_a_call_has_no_finding() -> None:
    assert judged(raced()) == []


@pytest.mark.parametrize(
    ("forge", "said"),
    [
        (lambda cancels: cancels.append(2), "cancels its calls [2], and they have not ended"),
        (lambda cancels: cancels.append(9), "it cancels the calls [9], and has made 3"),
        (lambda cancels: cancels.clear(), "cancelled"),
    ],
)
def test_a_log_whose_report_names_other_calls_is_found(forge: Callable[[Any], None], said: str) -> None:
    found = judged(raced(), forge)
    assert any(said in one for one in found), found
