"""Lists of runs: whatever combination of filters is asked for, the answer is what one would pick by hand."""

import itertools
from typing import Any

from tests.store.values import TENANT, a_run, details, new_run, run_id, save

from stepkeep.kernel.states import RUN_TERMINAL, RunState
from stepkeep.store.change import NewRun
from stepkeep.store.listing import LIVE, TAKES, TROUBLED, finder
from stepkeep.store.protocol import Store
from stepkeep.store.records import RunFilter, RunRecord

S = RunState
STATES = ((), (S.SUCCEEDED,), (S.FAILED,), (S.BLOCKED, S.RUNNING), (S.FAILED, S.STOPPING), (S.FAILED, S.RUNNING))
WORKFLOWS = (None, "onboarding", "billing", "none")
KEYS = (None, "k", "none")
CORRELATIONS = (None, "c", run_id(3), "none")
BEFORE = (None, run_id(9), run_id(1))
LIMITS = (2, 50)


def a_mixture() -> list[NewRun]:
    """Runs of all states, and of every combination of what can be filtered by."""
    states = itertools.cycle(sorted(RunState))
    combined = itertools.product(WORKFLOWS[1:3], (None, "k"), ("c", None))
    runs = []
    for number, (workflow, business_key, correlation) in enumerate([*combined] * 2):
        state = next(states)
        ended = {"ended_at": 9} if state in RUN_TERMINAL else {}
        given = details(
            number,
            workflow=workflow,
            business_key=business_key,
            correlation_id=correlation or run_id(number),
        )
        runs.append(new_run(number, run=a_run(number, state, **ended), details=given))
    return runs


def picked(records: list[RunRecord], which: RunFilter) -> list[str]:
    """By hand."""
    fits = [
        record.run.id
        for record in records
        if (not which.states or record.run.state in which.states)
        and which.workflow in (None, record.details.workflow)
        and which.business_key in (None, record.details.business_key)
        and which.correlation_id in (None, record.details.correlation_id)
        and (which.before is None or record.run.id < which.before)
    ]
    return sorted(fits, reverse=True)[: which.limit]


async def test_every_combination_of_filters_lists_what_one_would_pick_by_hand(store: Store) -> None:
    made = a_mixture()
    await save(store, *made)
    records = [RunRecord(run=new.run, details=new.details) for new in made]
    asked = set()
    for states, workflow, key, correlation, before, limit in itertools.product(
        STATES, WORKFLOWS, KEYS, CORRELATIONS, BEFORE, LIMITS
    ):
        which = RunFilter(
            tenant=TENANT,
            states=states,
            workflow=workflow,
            business_key=key,
            correlation_id=correlation,
            before=before,
            limit=limit,
        )
        listed = await store.list_runs(which)
        assert [record.run.id for record in listed] == picked(records, which), which
        asked.add(finder(which))
    assert asked == set(TAKES) - {"find_runs_by_words"}, "every statement had its turn"


async def test_words_are_found_in_every_part_of_a_run_in_any_case(store: Store) -> None:
    parts: dict[int, dict[str, Any]] = {
        1: {"input": b'{"customer": "Grace \xc3\xa9"}'},
        2: {"labels": b'{"team": "GRACE"}'},
        3: {"created_by": "grace"},
        4: {"workflow": "disgraceful"},
        5: {"correlation_id": "x-Grace-1"},
        6: {"input": b'{"customer": "edsger"}'},
    }
    for number, given in parts.items():
        await save(store, new_run(number, details=details(number, **given)))
    failed = a_run(7, S.FAILED, error="no Grace period is left", ended_at=9)
    await save(store, new_run(7, run=failed, details=details(7, created_by="grace")))
    which = RunFilter(tenant=TENANT, words="grace")
    assert [one.run.id for one in await store.list_runs(which)] == [run_id(number) for number in (7, 5, 4, 3, 2, 1)]
    assert await store.count_found(which) == 6
    for words in ("grace", "period"):
        troubled = RunFilter(tenant=TENANT, words=words, states=(S.FAILED,))
        assert [one.run.id for one in await store.list_runs(troubled)] == [run_id(7)]
    later = RunFilter(tenant=TENANT, words="grace", before=run_id(4), limit=2, states=(RunState.RUNNING,))
    assert [one.run.id for one in await store.list_runs(later)] == [run_id(3), run_id(2)]
    for nothing in (RunFilter(tenant="other", words="grace"), RunFilter(tenant=TENANT, words="gr%ce")):
        assert await store.list_runs(nothing) == []


async def test_what_is_listed_is_the_whole_record(store: Store) -> None:
    made = a_mixture()
    await save(store, *made)
    listed = await store.list_runs(RunFilter(tenant=TENANT))
    assert listed == [RunRecord(run=new.run, details=new.details) for new in reversed(made)]


def test_every_state_is_live_troubled_or_a_success() -> None:
    assert LIVE | TROUBLED | {S.SUCCEEDED} == set(RunState)
    assert S.SUCCEEDED not in LIVE | TROUBLED
