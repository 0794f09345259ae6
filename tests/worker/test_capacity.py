"""Slots: the two limits, counted over everything that has a place or may get one."""

from __future__ import annotations

from typing import Any

import pytest
from tests.worker.making import a_claim, a_plan

from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.kernel.definition import Dependency, Handler, QueueSpec, StepDefinition
from stepkeep.kernel.machine.outcomes import Completed, Failed
from stepkeep.kernel.machine.states import Category
from stepkeep.worker.attempts.capacity import ChainBudget, FreeSlots, Slots
from stepkeep.worker.attempts.executor import Job
from stepkeep.worker.attempts.leases import Leases
from stepkeep.worker.attempts.prepared import PreparedSteps
from stepkeep.worker.chores.queues import Kind, Served, served_queues
from stepkeep.worker.executors.command import CommandPolicy
from stepkeep.worker.executors.http import HttpPolicy
from stepkeep.worker.settings import Settings

DONE = Completed(output=b"1")
FAILED = Failed(category=Category.UNKNOWN, error="it broke")
ASYNC, BLOCKING = 7, 1
"""Queues; the steps that follow in the plans of these tests are all of queue 1."""
BOTH = Served(async_=frozenset({ASYNC}), blocking=frozenset({BLOCKING}))


def some_slots(concurrency: int, threads: int, queues: Served = BOTH) -> tuple[Slots, Leases]:
    leases = Leases()
    slots = Slots(Settings(concurrency=concurrency, threads=threads), leases)
    slots.queues = queues
    return slots, leases


def jobs(count: int, queue: int, dependents: int = 0) -> list[Job]:
    """Attempts of a step of this queue, which this many others wait for."""
    work = Handler(name="work")
    after = [
        StepDefinition(name=f"after-{n}", order=1, executor=work, depends_on=(Dependency(step="first"),))
        for n in range(dependents)
    ]
    plan = a_plan(StepDefinition(name="first", order=0, executor=work), *after)
    registry = Registry()
    registry.register(HandlerSpec(name="work", function=print))
    claim = a_claim(plan, queue=queue)
    code = PreparedSteps(registry, Settings()).of(claim)
    return [Job(claim, code) for _ in range(count)]


# -- what is free ---------------------------------------------------------------------------------------------------
def test_an_empty_worker_has_all_its_slots_but_those_kept_for_blocking_work() -> None:
    slots, _ = some_slots(50, 3)
    assert slots.free == FreeSlots(total=50, blocking=3, kept=3)
    assert (slots.free.of(Kind.ASYNC), slots.free.of(Kind.BLOCKING)) == (47, 3)


def test_a_worker_that_serves_no_blocking_work_keeps_no_place_for_it() -> None:
    slots, _ = some_slots(50, 3, Served(async_=frozenset({ASYNC})))
    assert slots.free.of(Kind.ASYNC) == 50


def test_no_more_than_a_quarter_of_the_slots_is_kept() -> None:
    slots, _ = some_slots(100, 64)
    assert (slots.free.of(Kind.ASYNC), slots.free.of(Kind.BLOCKING)) == (75, 64)


def test_blocking_attempts_take_what_was_kept_for_them_first() -> None:
    slots, leases = some_slots(50, 3)
    leases.add(jobs(2, BLOCKING))
    assert slots.free == FreeSlots(total=48, blocking=1, kept=1)
    assert slots.free.of(Kind.ASYNC) == 47


def test_a_worker_full_of_blocking_work_has_slots_for_async_work_only() -> None:
    slots, leases = some_slots(50, 3)
    leases.add(jobs(3, BLOCKING))
    assert (slots.free.of(Kind.ASYNC), slots.free.of(Kind.BLOCKING)) == (47, 0)


def test_where_async_work_has_every_place_the_next_that_come_free_are_for_blocking_work() -> None:
    slots, leases = some_slots(50, 3)
    leases.add(held := jobs(50, ASYNC))
    assert slots.free.of(Kind.BLOCKING) == 0
    leases.drop(held[0])
    assert (slots.free.of(Kind.ASYNC), slots.free.of(Kind.BLOCKING)) == (-2, 1)


def test_a_handler_that_outlived_its_lease_has_its_place_and_its_thread() -> None:
    slots, _ = some_slots(50, 3)
    slots.orphaned.update(jobs(2, BLOCKING))
    assert slots.free == FreeSlots(total=48, blocking=1, kept=1)


def test_a_claim_under_way_has_the_slots_it_may_fill() -> None:
    slots, _ = some_slots(50, 3)
    with slots.reserve(2, 2), slots.reserve(10):
        assert slots.free == FreeSlots(total=38, blocking=1, kept=1)
        assert slots.unused == FreeSlots(total=50, blocking=3), "it holds nothing yet"
    assert slots.free == FreeSlots(total=50, blocking=3, kept=3)


def test_what_was_set_aside_is_given_back_when_the_claim_fails() -> None:
    slots, leases = some_slots(50, 3)
    leases.add(held := jobs(1, BLOCKING))
    with pytest.raises(OSError, match="the line broke"), slots.reserve(2, 1, set(held)):
        raise OSError("the line broke")
    leases.drop(held[0])
    assert slots.free == FreeSlots(total=50, blocking=3, kept=3)


def test_a_promised_place_stays_taken_when_its_job_is_given_up_and_is_counted_once_when_not() -> None:
    slots, leases = some_slots(50, 3)
    leases.add(held := jobs(2, BLOCKING))
    with slots.reserve(0, 0, set(held)):
        assert slots.free.blocking == 1
        leases.drop(held[0])
        assert slots.free == FreeSlots(total=48, blocking=1, kept=1)
    assert slots.free == FreeSlots(total=49, blocking=2, kept=2)


# -- what a commit is offered ---------------------------------------------------------------------------------------
def offered(slots: Slots, batch: list[Job], outcome: Any = DONE) -> ChainBudget:
    return slots.chain_budget([(job, outcome) for job in batch], set(batch))


def test_a_report_offers_its_own_place_and_no_more_than_can_follow() -> None:
    slots, leases = some_slots(50, 3, Served(async_=frozenset({ASYNC, BLOCKING})))
    leases.add(held := jobs(2, ASYNC, dependents=3))
    assert offered(slots, held) == ChainBudget(follow=6, slots=6, blocking_slots=0, spare=4, blocking_spare=0)


def test_async_reports_offer_no_more_blocking_slots_than_there_are_threads() -> None:
    slots, leases = some_slots(50, 3)
    leases.add(held := jobs(20, ASYNC, dependents=1))
    assert offered(slots, held) == ChainBudget(follow=20, slots=20, blocking_slots=3, spare=0, blocking_spare=3)


def test_a_full_house_offers_the_slots_that_it_leaves_to_either_kind() -> None:
    slots, leases = some_slots(50, 3)
    leases.add(held := jobs(50, ASYNC, dependents=2))
    assert offered(slots, held[:10]) == ChainBudget(follow=20, slots=10, blocking_slots=3, spare=0, blocking_spare=3)


def test_a_blocking_report_offers_its_thread_even_when_no_other_is_free() -> None:
    slots, leases = some_slots(50, 3)
    leases.add(held := jobs(3, BLOCKING, dependents=1))
    assert offered(slots, held[:1]) == ChainBudget(follow=1, slots=1, blocking_slots=1, spare=0, blocking_spare=0)


def test_a_report_that_no_blocking_step_can_follow_holds_no_thread_that_others_could_use() -> None:
    slots, leases = some_slots(50, 3)
    leases.add(held := jobs(20, ASYNC))
    assert offered(slots, held).blocking_slots == 0
    assert offered(slots, held, FAILED).blocking_slots == 3, "a hook may follow, of any kind"


def test_threads_that_another_commit_may_fill_are_offered_to_nobody_else() -> None:
    slots, leases = some_slots(50, 3)
    leases.add(held := jobs(20, ASYNC, dependents=1))
    first = offered(slots, held[:2])
    with slots.reserve(first.spare, first.blocking_spare, set(held[:2])):
        assert offered(slots, held[2:]).blocking_slots == 1


# -- which work is blocking -------------------------------------------------------------------------------------------
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
    assert found.all == found.async_ | found.blocking
    waiting, blocking = (
        {known[number].name or known[number].kind for number in each} for each in (found.async_, found.blocking)
    )
    return waiting, blocking


def test_coroutines_are_async_and_everything_else_is_blocking() -> None:
    waiting, blocking = served(Settings())
    assert waiting == {"coroutine", "agent"}
    assert blocking == {"exact", "thread", "process", "slow-agent", "command", "http", "rules"}


def test_nothing_is_blocking_where_there_are_as_many_threads_as_places() -> None:
    waiting, blocking = served(Settings(concurrency=4))
    assert len(waiting) == 9
    assert blocking == set()


def test_what_a_worker_must_not_run_is_of_neither_kind() -> None:
    waiting, blocking = served(Settings(commands=CommandPolicy(enabled=False), http=HttpPolicy(enabled=False)))
    assert not {"command", "http", "stranger", "novel"} & (waiting | blocking)
