"""Steps that need resources, in every dialect: true logs pass, and a log with two exclusive holders does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.conformance.tellings import CANONICAL, found_in, log_in
from tests.kernel.driver import World, work

from stepkeep.dialects.registry import names
from stepkeep.kernel.decide.resources import AWAITS_RESOURCES
from stepkeep.kernel.errors import Conflict
from stepkeep.kernel.machine.events import ResourceGrant

REPO: Any = {"repo": "exclusive"}


def two(first: Any = REPO, second: Any = REPO, **settings: Any) -> World:
    return World(work("a", resources=first, **settings), work("b", resources=second, **settings))


@pytest.mark.parametrize("words", [CANONICAL, *names()])
def test_steps_that_hold_a_resource_one_after_the_other_are_certified(words: str) -> None:
    world = two({"repo": "exclusive", "cpu": 2}, {"repo": "shared"})
    assert world.rows[0].ready_at == AWAITS_RESOURCES + world.now
    world.lose("a")
    world.finish("a")
    world.finish("b")
    assert world.over
    assert found_in(words, log_in(words, world)) == ()


@pytest.mark.parametrize("words", [CANONICAL, *names()])
def test_steps_that_share_a_resource_may_run_at_once(words: str) -> None:
    world = two({"repo": "shared", "cpu": 1}, {"repo": "shared", "cpu": 3})
    world.claim("a", "b")
    world.finish("a", "b")
    assert found_in(words, log_in(words, world)) == ()


@pytest.mark.parametrize("words", [CANONICAL, *names()])
@pytest.mark.parametrize("second", ["exclusive", "shared"])
def test_two_holders_of_what_one_holds_alone_are_a_finding(words: str, second: str) -> None:
    world = two(second={"repo": second})
    world.claim("a", "b")
    world.finish("a", "b")
    lines = log_in(words, world)
    shows = sum("resources" in (line["metadata"].get("detail") or {}) for line in lines) > 1
    held_alone = any("one of them holds it alone" in said for said in found_in(words, lines))
    assert held_alone == (shows and words == CANONICAL)


def without_detail(line: dict[str, Any]) -> None:
    del line["metadata"]["detail"]


def with_a_share(line: dict[str, Any]) -> None:
    line["metadata"]["detail"]["resources"][0]["amount"] = "shared"


def beyond_the_pool(line: dict[str, Any]) -> None:
    line["metadata"]["detail"]["resources"][1] |= {"held": 7, "most": 8}


@pytest.mark.parametrize("forge", [without_detail, with_a_share, beyond_the_pool])
def test_a_forged_claim_is_a_finding(forge: Callable[[dict[str, Any]], None]) -> None:
    world = World(work("a", resources={"cpu": 2, "repo": "exclusive"} if forge is beyond_the_pool else REPO))
    if forge is beyond_the_pool:
        world = World(work("a", resources={"a": "exclusive", "cpu": 2}))
    world.finish("a")
    lines = log_in(CANONICAL, world)
    assert found_in(CANONICAL, lines) == ()
    for line in lines:
        if "resources" in (line["metadata"].get("detail") or {}):
            forge(line)
    assert found_in(CANONICAL, lines) != ()


def test_a_claim_without_its_resources_is_refused() -> None:
    world = two()
    claim = world.claiming("a")
    for name, amount in (("repo", "shared"), ("other", "exclusive"), ("repo", 3)):
        with pytest.raises(Conflict, match="needs repo"):
            world.one(replace(claim, resources=(ResourceGrant(name=name, amount=amount),)))
    with pytest.raises(Conflict, match="needs repo"):
        world.one(replace(claim, resources=()))
