"""What every store promises about jobs that act on many runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.store.values import TENANT, run_id

from stepkeep.store.connect import connect
from stepkeep.store.protocol import Store
from stepkeep.store.rows import (
    Job,
    JobAction,
    JobRun,
    JobState,
    RunOutcome,
)

LEASE = 30 * 1_000_000
RUNS = [run_id(number) for number in range(1, 6)]


def a_job(number: int = 1, **given: Any) -> Job:
    plain: dict[str, Any] = {
        "tenant": TENANT,
        "id": f"job-{number}",
        "action": JobAction.CANCEL,
        "state": JobState.RUNNING,
        "options": b"{}",
        "created_at": 1,
        "created_by": "ann",
        "vouched_by": None,
        "api_key": None,
        "idempotency_key": None,
        "digest": b"d" * 32,
        "seq": 0,
        "lease_until": 1,
    }
    return Job(**{**plain, **given})


def became(number: int, state: RunOutcome = RunOutcome.DONE, **given: Any) -> JobRun:
    return JobRun(tenant=TENANT, job_id="job-1", run_id=run_id(number), state=state, **given)


async def test_a_job_is_what_was_added(store: Store) -> None:
    full = a_job(idempotency_key="k", vouched_by="host", api_key="0" * 16, scope="0" * 16)
    assert await store.jobs.add(full, RUNS) is True
    assert await store.jobs.read(TENANT, "job-1") == full
    assert await store.jobs.read("other", "job-1") is None
    assert await store.jobs.find_by_key(TENANT, "k", "0" * 16) == full
    assert await store.jobs.find_by_key("other", "k", "") is None
    assert await store.jobs.find_waiting(TENANT, "job-1", 2) == RUNS[:2]
    assert [one.run_id for one in await store.jobs.list_runs(TENANT, "job-1")] == RUNS
    assert [one.run_id for one in await store.jobs.list_runs(TENANT, "job-1", RUNS[1], 2)] == RUNS[2:4]
    assert await store.jobs.count_runs(TENANT, ["job-1", "none"]) == {"job-1": {RunOutcome.WAITING: 5}, "none": {}}


async def test_an_idempotency_key_has_one_job(store: Store) -> None:
    assert await store.jobs.add(a_job(1, idempotency_key="k"), RUNS) is True
    assert await store.jobs.add(a_job(2, idempotency_key="k"), RUNS) is False
    assert await store.jobs.read(TENANT, "job-2") is None
    assert await store.jobs.list_runs(TENANT, "job-2") == []
    assert await store.jobs.add(a_job(3), []) is True
    assert await store.jobs.add(a_job(4), []) is True
    assert await store.jobs.add(a_job(5, tenant="other", idempotency_key="k"), []) is True
    assert [one.id for one in await store.jobs.list_all(TENANT)] == ["job-4", "job-3", "job-1"]
    assert await store.jobs.add(a_job(6, idempotency_key="k2", scope="a key"), []) is True
    assert await store.jobs.add(a_job(7, idempotency_key="k2", scope="a key"), []) is False
    assert await store.jobs.add(a_job(8, idempotency_key="k2", scope="another key"), []) is True
    found = [await store.jobs.find_by_key(TENANT, *key) for key in (("k", "x"), ("k2", "a key"), ("k2", "x"))]
    assert [one and one.id for one in found] == ["job-1", "job-6", None]
    assert [one.id for one in await store.jobs.list_all(TENANT, "job-4", 1)] == ["job-3"]


async def test_one_worker_at_a_time_holds_a_job(store: Store) -> None:
    await store.jobs.add(a_job(), RUNS)
    assert await store.jobs.find_due(10) == [(TENANT, "job-1")]
    claims = await asyncio.gather(*(store.jobs.claim(TENANT, "job-1", f"w-{n}", LEASE) for n in range(5)))
    [held] = [one for one in claims if one is not None]
    assert held.seq == 1
    assert await store.jobs.find_due(10) == []
    store.clock_offset += LEASE + 1
    assert await store.jobs.find_due(10) == [(TENANT, "job-1")]
    taken = await store.jobs.claim(TENANT, "job-1", "w-9", LEASE)
    assert taken is not None
    assert (taken.seq, taken.holder) == (2, "w-9")
    # The first worker is fenced off: nothing that it says is written.
    assert await store.jobs.report(held, [became(1)], LEASE, done=True) is False
    assert await store.jobs.count_runs(TENANT, ["job-1"]) == {"job-1": {RunOutcome.WAITING: 5}}
    assert await store.jobs.report(taken, [became(1), became(2, RunOutcome.REFUSED, detail="no")], LEASE) is True
    assert await store.jobs.find_waiting(TENANT, "job-1", 10) == RUNS[2:]


async def test_what_became_of_a_run_stays(store: Store) -> None:
    await store.jobs.add(a_job(), RUNS)
    held = await store.jobs.claim(TENANT, "job-1", "w-1", LEASE)
    assert held is not None
    first = became(1, new_run_id=run_id(9))
    assert await store.jobs.report(held, [first], LEASE) is True
    assert await store.jobs.report(held, [became(1, RunOutcome.REFUSED, detail="late")], 0) is True
    assert (await store.jobs.list_runs(TENANT, "job-1"))[0] == first
    # A report with no lease gives the job back.
    assert await store.jobs.find_due(10) == [(TENANT, "job-1")]


async def test_a_job_that_has_ended_is_not_claimed_or_reported(store: Store) -> None:
    await store.jobs.add(a_job(), RUNS)
    held = await store.jobs.claim(TENANT, "job-1", "w-1", LEASE)
    assert held is not None
    assert await store.jobs.stop("other", "job-1") is False
    assert await store.jobs.stop(TENANT, "job-1") is True
    assert await store.jobs.stop(TENANT, "job-1") is False
    assert await store.jobs.report(held, [became(1)], LEASE) is False
    store.clock_offset += LEASE + 1
    assert await store.jobs.find_due(10) == []
    assert await store.jobs.claim(TENANT, "job-1", "w-2", LEASE) is None
    ended = await store.jobs.read(TENANT, "job-1")
    assert ended is not None
    assert (ended.state, ended.ended_at is None) == (JobState.STOPPED, False)


async def test_jobs_that_ended_long_ago_are_forgotten_with_their_runs(store: Store) -> None:
    for number in (1, 2, 3, 4):
        assert await store.jobs.add(a_job(number), RUNS[:1])
    assert await store.jobs.add(a_job(5, tenant="another"), RUNS[:1])
    assert await store.jobs.add(a_job(6), [])
    for number in (1, 2, 3):
        assert await store.jobs.stop(TENANT, f"job-{number}")
    assert await store.jobs.stop("another", "job-5")
    later = await store.now() + 1
    assert await store.jobs.forget(TENANT, 0, 9) == 0, "none of them ended so long ago"
    assert await store.jobs.forget(TENANT, later, 1) == 1
    assert [one.id for one in await store.jobs.list_all(TENANT)] == ["job-6", "job-4", "job-3", "job-2"], (
        "the oldest went"
    )
    assert await store.jobs.list_runs(TENANT, "job-1") == []
    assert len(await store.jobs.list_runs(TENANT, "job-2")) == 1
    assert await store.jobs.forget(TENANT, later, 9) == 2
    assert await store.jobs.forget(TENANT, later, 9) == 0, "a job that runs is kept"
    assert len(await store.jobs.list_runs(TENANT, "job-4")) == 1
    assert len(await store.jobs.list_runs("another", "job-5")) == 1, "another tenant's are kept"
    assert await store.jobs.read("another", "job-5") is not None


PLANTED = {
    "a job that runs is forgotten": ("forget_jobs", "j.state <> 'running' and j.ended_at < ?2", "?2 > 0"),
    "runs of a job that runs are forgotten": ("forget_job_runs", "state <> 'running' and ended_at < ?2", "?2 > 0"),
    "runs of a forgotten job stay": ("forget_job_runs", "where tenant = ?1 and job_id", "where ?1 = '' and job_id"),
    "a job that a worker holds is claimed": ("claim_job", " and lease_until <= ?3", ""),
    "a claim does not fence the one before it": ("claim_job", "seq = seq + 1, ", ""),
    "a worker whose claim is gone reports": ("report_job", " and seq = ?3", " and ?3 = ?3"),
    "what became of a run is replaced": ("update_job_run", " and state = 'waiting'", ""),
    "an idempotency key has two jobs": ("insert_job", "on conflict do nothing", "on conflict do update set id = id"),
}


@pytest.mark.parametrize("bug", PLANTED)
async def test_a_bug_in_a_statement_is_found(bug: str, tmp_path: Path) -> None:
    statement, right, wrong = PLANTED[bug]
    contract = [
        test_a_job_is_what_was_added,
        test_an_idempotency_key_has_one_job,
        test_one_worker_at_a_time_holds_a_job,
        test_what_became_of_a_run_stays,
        test_a_job_that_has_ended_is_not_claimed_or_reported,
        test_jobs_that_ended_long_ago_are_forgotten_with_their_runs,
    ]
    found = 0
    for number, check in enumerate(contract):
        store = connect(f"sqlite:///{tmp_path}/{number}.db")
        await store.open()
        await store.migrate()
        tables: Any = store.jobs
        text = getattr(tables._sql, statement)
        assert right in text
        tables._sql = SimpleNamespace(**{**vars(tables._sql), statement: text.replace(right, wrong)})
        try:
            await check(store)
        except (AssertionError, ValueError):
            found += 1
        finally:
            await store.close()
    assert found > 0, bug
