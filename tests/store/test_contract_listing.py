"""Lists of runs: whatever combination of filters is asked for, the answer is what one would pick by hand."""

import itertools
from typing import Any

from tests.store.values import TENANT, a_run, details, new_run, run_id, save

from stepkeep.kernel.machine.states import RUN_TERMINAL, RunState
from stepkeep.store.change import NewRun
from stepkeep.store.listing import LIVE, TAKES, TROUBLED, finder
from stepkeep.store.protocol import Store
from stepkeep.store.records import RunFilter, RunRecord, Words

S = RunState
STATES = ((), (S.SUCCEEDED,), (S.FAILED,), (S.BLOCKED, S.RUNNING), (S.FAILED, S.STOPPING), (S.FAILED, S.RUNNING))
WORKFLOWS = (None, "onboarding", "billing", "none")
KEYS = (None, "k", "none")
CORRELATIONS = (None, "c", run_id(3), "none")
BEFORE = (None, run_id(9), run_id(1))
OLDEST = (None, run_id(4))
ERRED = (False, True)
LIMITS = (2, 50)


def a_mixture() -> list[NewRun]:
    """Runs of all states, and of every combination of what can be filtered by."""
    states = itertools.cycle(sorted(RunState))
    combined = itertools.product(WORKFLOWS[1:3], (None, "k"), ("c", None))
    runs = []
    for number, (workflow, business_key, correlation) in enumerate([*combined] * 2):
        state = next(states)
        ended = {"ended_at": 9} if state in RUN_TERMINAL else {}
        error = {"error": "no"} if state in TROUBLED or (number % 3 == 0 and state in LIVE) else {}
        given = details(
            number,
            workflow=workflow,
            business_key=business_key,
            correlation_id=correlation or run_id(number),
        )
        runs.append(new_run(number, run=a_run(number, state, **ended, **error), details=given))
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
        and (which.oldest is None or record.run.id >= which.oldest)
        and (finder(which) != "find_erred_runs" or record.run.error is not None)
    ]
    return sorted(fits, reverse=True)[: which.limit]


async def test_every_combination_of_filters_lists_what_one_would_pick_by_hand(store: Store) -> None:
    made = a_mixture()
    await save(store, *made)
    records = [RunRecord(run=new.run, details=new.details) for new in made]
    asked = set()
    bounds = [*itertools.product(BEFORE, OLDEST[:1], LIMITS), (run_id(9), OLDEST[1], 50)]
    for states, workflow, key, correlation, (before, oldest, limit) in itertools.product(
        STATES, WORKFLOWS, KEYS, CORRELATIONS, bounds
    ):
        which = RunFilter(
            tenant=TENANT,
            states=states,
            workflow=workflow,
            business_key=key,
            correlation_id=correlation,
            before=before,
            oldest=oldest,
            limit=limit,
        )
        listed = await store.list_runs(which)
        assert [record.run.id for record in listed] == picked(records, which), which
        asked.add(finder(which))
    for states, workflow, (before, oldest, limit) in itertools.product(STATES, WORKFLOWS, bounds):
        which = RunFilter(
            tenant=TENANT, states=states, workflow=workflow, erred=True, before=before, oldest=oldest, limit=limit
        )
        assert [record.run.id for record in await store.list_runs(which)] == picked(records, which), which
        asked.add(finder(which))
    assert asked == set(TAKES), "every statement had its turn"


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

    async def found(words: Words, most: int = 100, **given: Any) -> tuple[list[str], int, int, str | None]:
        told = await store.search_runs(RunFilter(**{"tenant": TENANT, **given}), words, most)
        return [one.run.id for one in told.records], told.total, told.looked_at, told.last

    def those(*numbers: int) -> list[str]:
        return [run_id(number) for number in numbers]

    grace = Words(text="grace")
    assert await found(grace) == (those(7, 5, 4, 3, 2, 1), 6, 7, run_id(1))
    assert await found(grace, limit=2) == (those(7, 5), 6, 7, run_id(1)), "the total counts all"
    assert await found(grace, most=4) == (those(7, 5, 4), 3, 4, run_id(4)), "it says where it ended"
    assert await found(grace, most=4, before=run_id(4)) == (those(3, 2, 1), 3, 3, run_id(1)), "and goes on there"
    assert await found(grace, oldest=run_id(5)) == (those(7, 5), 2, 3, run_id(5))
    assert await found(Words(text="e \u00e9")) == (those(1), 1, 7, run_id(1)), "beyond ASCII too"
    assert await found(Words(), limit=0) == ([], 7, 7, run_id(1))
    for words in (grace, Words(text="period"), Words(error="no grace"), Words(error="grace", text="period")):
        assert await found(words, states=(S.FAILED,)) == (those(7), 1, 1, run_id(7))
        assert await found(words, erred=True) == (those(7), 1, 1, run_id(7)), "few runs have an error"
    later: Any = {"before": run_id(4), "limit": 2, "states": (S.RUNNING,)}
    assert await found(grace, **later) == (those(3, 2), 3, 3, run_id(1))
    for nothing in (Words(text="gr%ce"), Words(text="gr\\ce"), Words(error="edsger"), Words(labels=(b'"team":"b"',))):
        assert (await found(nothing))[:2] == (await found(nothing, states=(S.RUNNING,)))[:2] == ([], 0)
    assert await found(grace, tenant="other") == ([], 0, 0, None)


async def test_labels_are_found_as_they_are_stored(store: Store) -> None:
    given: dict[int, Any] = {
        1: b'{"team":"a","tier":"Gold"}',
        2: b'{"team":"A"}',
        3: None,
        4: b'{"x":"\\"team\\":\\"a\\""}',
    }
    for number, labels in given.items():
        await save(store, new_run(number, details=details(number, labels=labels)))
    team, tier = b'"team":"a"', b'"tier":"Gold"'
    for wanted, numbers in {(team,): [1], (tier, team): [1], (team, b'"tier":"x"'): [], (b'"team":"A"',): [2]}.items():
        for states in ((), (S.RUNNING,)):
            which = RunFilter(tenant=TENANT, states=states)
            told = await store.search_runs(which, Words(labels=wanted), 100)
            assert [one.run.id for one in told.records] == [run_id(number) for number in numbers]


async def test_what_is_listed_is_the_whole_record(store: Store) -> None:
    made = a_mixture()
    await save(store, *made)
    listed = await store.list_runs(RunFilter(tenant=TENANT))
    assert listed == [RunRecord(run=new.run, details=new.details) for new in reversed(made)]


def test_every_state_is_live_troubled_or_a_success() -> None:
    assert LIVE | TROUBLED | {S.SUCCEEDED} == set(RunState)
    assert S.SUCCEEDED not in LIVE | TROUBLED
