"""Places: the two limits, counted over everything that has a place or may get one."""

from __future__ import annotations

from typing import Any

import pytest
from tests.worker.making import a_claim, a_plan

from stepkeep.definition.registry import HandlerSpec, Registry
from stepkeep.kernel.definition import Dependency, Handler, QueueSpec, StepDefinition
from stepkeep.kernel.outcomes import Completed, Failed
from stepkeep.kernel.states import Category
from stepkeep.worker.code import Codes
from stepkeep.worker.executor import Job
from stepkeep.worker.executors.command import CommandPolicy
from stepkeep.worker.executors.http import HttpPolicy
from stepkeep.worker.leases import Leases
from stepkeep.worker.queues import Kind, Served, served_queues
from stepkeep.worker.room import Offer, Places, Room
from stepkeep.worker.settings import Settings

DONE = Completed(output=b"1")
FAILED = Failed(category=Category.UNKNOWN, error="it broke")
WIDE, NARROW = 7, 1
"""Queues; the steps that follow in the plans of these tests are all of queue 1."""
BOTH = Served(wide=frozenset({WIDE}), narrow=frozenset({NARROW}))


def some_places(concurrency: int, threads: int, queues: Served = BOTH) -> tuple[Places, Leases]:
    leases = Leases()
    places = Places(Settings(concurrency=concurrency, threads=threads), leases)
    places.queues = queues
    return places, leases


def jobs(count: int, queue: int, dependents: int = 0) -> list[Job]:
    """Attempts of a step of this queue, which so many others wait for."""
    work = Handler(name="work")
    after = [
        StepDefinition(name=f"after-{n}", order=1, executor=work, depends_on=(Dependency(step="first"),))
        for n in range(dependents)
    ]
    plan = a_plan(StepDefinition(name="first", order=0, executor=work), *after)
    registry = Registry()
    registry.register(HandlerSpec(name="work", function=print))
    claim = a_claim(plan, queue=queue)
    code = Codes(registry, Settings()).of(claim)
    return [Job(claim, code) for _ in range(count)]


# -- what is free ---------------------------------------------------------------------------------------------------
def test_an_empty_worker_has_all_its_places_but_those_kept_for_narrow_work() -> None:
    places, _ = some_places(50, 3)
    assert places.free == Room(total=50, narrow=3, kept=3)
    assert (places.free.of(Kind.WIDE), places.free.of(Kind.NARROW)) == (47, 3)


def test_a_worker_that_serves_no_narrow_work_keeps_no_place_for_it() -> None:
    places, _ = some_places(50, 3, Served(wide=frozenset({WIDE})))
    assert places.free.of(Kind.WIDE) == 50


def test_no_more_than_a_quarter_of_the_places_is_kept() -> None:
    places, _ = some_places(100, 64)
    assert (places.free.of(Kind.WIDE), places.free.of(Kind.NARROW)) == (75, 64)


def test_narrow_attempts_take_what_was_kept_for_them_first() -> None:
    places, leases = some_places(50, 3)
    leases.add(jobs(2, NARROW))
    assert places.free == Room(total=48, narrow=1, kept=1)
    assert places.free.of(Kind.WIDE) == 47


def test_a_house_full_of_narrow_work_has_room_for_wide_work_only() -> None:
    places, leases = some_places(50, 3)
    leases.add(jobs(3, NARROW))
    assert (places.free.of(Kind.WIDE), places.free.of(Kind.NARROW)) == (47, 0)


def test_where_wide_work_has_every_place_the_next_that_come_free_are_for_narrow_work() -> None:
    places, leases = some_places(50, 3)
    leases.add(held := jobs(50, WIDE))
    assert places.free.of(Kind.NARROW) == 0
    leases.drop(held[0])
    assert (places.free.of(Kind.WIDE), places.free.of(Kind.NARROW)) == (-2, 1)


def test_a_handler_that_outlived_its_lease_has_its_place_and_its_thread() -> None:
    places, _ = some_places(50, 3)
    places.zombies.update(jobs(2, NARROW))
    assert places.free == Room(total=48, narrow=1, kept=1)


def test_a_claim_under_way_has_the_places_it_may_fill() -> None:
    places, _ = some_places(50, 3)
    with places.set_aside(2, 2), places.set_aside(10):
        assert places.free == Room(total=38, narrow=1, kept=1)
    assert places.free == Room(total=50, narrow=3, kept=3)


def test_what_was_set_aside_is_given_back_when_the_claim_fails() -> None:
    places, leases = some_places(50, 3)
    leases.add(held := jobs(1, NARROW))
    with pytest.raises(OSError, match="the line broke"), places.set_aside(2, 1, set(held)):
        raise OSError("the line broke")
    leases.drop(held[0])
    assert places.free == Room(total=50, narrow=3, kept=3)


def test_a_promised_place_stays_taken_when_its_job_is_given_up_and_is_counted_once_when_not() -> None:
    places, leases = some_places(50, 3)
    leases.add(held := jobs(2, NARROW))
    with places.set_aside(0, 0, set(held)):
        assert places.free.narrow == 1
        leases.drop(held[0])
        assert places.free == Room(total=48, narrow=1, kept=1)
    assert places.free == Room(total=49, narrow=2, kept=2)


# -- what a commit is offered ---------------------------------------------------------------------------------------
def offered(places: Places, batch: list[Job], outcome: Any = DONE) -> Offer:
    return places.offer([(job, outcome) for job in batch], set(batch))


def test_a_report_offers_its_own_place_and_no_more_than_can_follow() -> None:
    places, leases = some_places(50, 3, Served(wide=frozenset({WIDE, NARROW})))
    leases.add(held := jobs(2, WIDE, dependents=3))
    assert offered(places, held) == Offer(follow=6, room=6, narrow_room=0, spare=4, narrow_spare=0)


def test_wide_reports_offer_no_more_narrow_places_than_there_are_threads() -> None:
    places, leases = some_places(50, 3)
    leases.add(held := jobs(20, WIDE, dependents=1))
    assert offered(places, held) == Offer(follow=20, room=20, narrow_room=3, spare=0, narrow_spare=3)


def test_a_full_house_offers_the_places_that_it_leaves_to_either_kind() -> None:
    places, leases = some_places(50, 3)
    leases.add(held := jobs(50, WIDE, dependents=2))
    assert offered(places, held[:10]) == Offer(follow=20, room=10, narrow_room=3, spare=0, narrow_spare=3)


def test_a_narrow_report_offers_its_thread_even_when_no_other_is_free() -> None:
    places, leases = some_places(50, 3)
    leases.add(held := jobs(3, NARROW, dependents=1))
    assert offered(places, held[:1]) == Offer(follow=1, room=1, narrow_room=1, spare=0, narrow_spare=0)


def test_a_report_that_no_narrow_step_can_follow_holds_no_thread_that_others_could_use() -> None:
    places, leases = some_places(50, 3)
    leases.add(held := jobs(20, WIDE))
    assert offered(places, held).narrow_room == 0
    assert offered(places, held, FAILED).narrow_room == 3, "a hook may follow, of any kind"


def test_threads_that_another_commit_may_fill_are_offered_to_nobody_else() -> None:
    places, leases = some_places(50, 3)
    leases.add(held := jobs(20, WIDE, dependents=1))
    first = offered(places, held[:2])
    with places.set_aside(first.spare, first.narrow_spare, set(held[:2])):
        assert offered(places, held[2:]).narrow_room == 1


# -- which work is narrow -------------------------------------------------------------------------------------------
async def coroutine() -> None: ...


def function() -> None: ...


async def agent(ctx: Any, action: str, inputs: Any) -> None: ...


def blocking_agent(ctx: Any, action: str, inputs: Any) -> None: ...


def served(settings: Settings) -> tuple[set[str], set[str]]:
    registry = Registry()
    for spec in (
        HandlerSpec(name="coroutine", function=coroutine),
        HandlerSpec(name="exact", function=coroutine, transactional=True),
        HandlerSpec(name="thread", function=function),
        HandlerSpec(name="process", function=function, mode="process"),
        HandlerSpec(name="agent", function=agent, kind="agent"),
        HandlerSpec(name="slow-agent", function=blocking_agent, kind="agent"),
    ):
        registry.register(spec)
    names = [("python", name) for name in ("coroutine", "exact", "thread", "process", "stranger")]
    names += [("agent", name) for name in ("agent", "slow-agent", "coroutine")]
    names += [("command", ""), ("http", ""), ("rules", ""), ("novel", "")]
    known = {number: QueueSpec(kind=kind, name=name) for number, (kind, name) in enumerate(names)}
    found = served_queues(known.items(), registry, capabilities=frozenset(), groups=None, settings=settings)
    assert found.all == found.wide | found.narrow
    wide, narrow = (
        {known[number].name or known[number].kind for number in each} for each in (found.wide, found.narrow)
    )
    return wide, narrow


def test_coroutines_are_wide_and_everything_else_is_narrow() -> None:
    wide, narrow = served(Settings())
    assert wide == {"coroutine", "agent"}
    assert narrow == {"exact", "thread", "process", "slow-agent", "command", "http", "rules"}


def test_nothing_is_narrow_where_there_are_as_many_threads_as_places() -> None:
    wide, narrow = served(Settings(concurrency=4))
    assert len(wide) == 9
    assert narrow == set()


def test_what_a_worker_must_not_run_is_of_neither_kind() -> None:
    wide, narrow = served(Settings(commands=CommandPolicy(enabled=False), http=HttpPolicy(enabled=False)))
    assert not {"command", "http", "stranger", "novel"} & (wide | narrow)
