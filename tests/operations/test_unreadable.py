"""A run whose rows cannot be read is named with its table and row, and keeps nobody from working on the others."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from msgspec.structs import replace

from stepkeep.engine import AsyncEngine
from stepkeep.kernel.decide.decision import Accepted
from stepkeep.kernel.definition import Approval, Definition, Handler
from stepkeep.kernel.errors import NotFound, Unreadable
from stepkeep.kernel.machine.events import GateDecided, TimeCame
from stepkeep.kernel.machine.states import RUN_TERMINAL, RunState
from stepkeep.operations.logs.retention import Policy, prune
from stepkeep.operations.pipeline.expire import sweep_timers
from stepkeep.operations.runs import search
from stepkeep.operations.runs.search import Terms, search_runs
from stepkeep.operations.runs.waiting import RunWaiter
from stepkeep.store.change import Lease
from stepkeep.store.records import RunFilter, Words
from tests.damage import damage
from tests.workbench import ACTOR, SECOND, TENANT, Bench, chain, gate, on, report_of, task

SIGNED = Definition(name="signed", version=1, steps=(gate("sign", approval=Approval(deadline=60 * SECOND)),))

DAMAGES = {
    "runs": "update runs set state = 'flying' where id = '{run}'",
    "steps": "update steps set state = 'flying' where run_id = '{run}'",
    "note": """update steps set note = '{{"event": 5}}' where run_id = '{run}'""",
    "broken note": "update steps set note = '{{' where run_id = '{run}'",
    "category": "update runs set category = 'bored' where id = '{run}'",
}


def approval(run_id: str) -> GateDecided:
    return GateDecided(tenant=TENANT, run_id=run_id, actor=ACTOR, approve=True, no=0)


@pytest.mark.parametrize("how", DAMAGES)
async def test_a_batch_goes_on_without_the_run_that_cannot_be_read(database_url: str, how: str) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(SIGNED)
        runs = [await bench.start(plan) for _ in range(6)]
        await damage(database_url, DAMAGES[how].format(run=runs[2]))
        replies = await bench.transactor.submit_all([approval(run_id) for run_id in runs])
        assert [type(reply) for reply in replies] == [Accepted] * 2 + [Unreadable] + [Accepted] * 3
        problem = replies[2]
        assert isinstance(problem, Unreadable)
        assert problem.run_id == runs[2]
        assert problem.table in ("runs", "steps")
        assert f"stepkeep quarantine {runs[2]}" in str(problem)


@pytest.mark.parametrize("how", DAMAGES)
async def test_claims_reach_beyond_steps_of_runs_that_cannot_be_read(database_url: str, how: str) -> None:
    async with on(database_url) as bench:
        wide = await bench.publish(Definition(name="wide", version=1, steps=tuple(task(f"s{n}", n) for n in range(7))))
        bad = [await bench.start(wide) for _ in range(3)]
        good = [await bench.start(await bench.publish(chain("one", 1))) for _ in range(4)]
        for run_id in bad:
            await damage(database_url, DAMAGES[how].format(run=run_id))
        claimed = [await bench.claim(limit=1) for _ in range(4)]
        assert [claim.run_id for claims in claimed for claim in claims] == good
        assert await bench.claim(limit=5) == []
        for claims in claimed:
            assert isinstance(await bench.report(claims[0]), Accepted)


@pytest.mark.parametrize("how", DAMAGES)
async def test_sweeps_move_what_is_due_and_tell_of_the_rest_once(
    database_url: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(SIGNED)
        bad = [await bench.start(plan) for _ in range(3)]
        good = [await bench.start(plan) for _ in range(3)]
        for run_id in bad:
            await damage(database_url, DAMAGES[how].format(run=run_id))
        bench.store.clock_offset += 61 * SECOND
        with caplog.at_level(logging.ERROR):
            while await sweep_timers(bench.transactor, limit=2):
                pass
            for _ in range(3):
                assert await sweep_timers(bench.transactor, limit=2) == 0
        for run_id in good:
            assert await bench.state(run_id) in RUN_TERMINAL
        told = [record.getMessage() for record in caplog.records]
        assert sorted(run_id for said in told for run_id in bad if run_id in said) == sorted(bad)
        assert len(told) == 3
        assert all(record.exc_info is None for record in caplog.records)


async def test_a_report_on_a_run_that_cannot_be_read_spoils_no_other(database_url: str) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(chain("two", 2))
        runs = [await bench.start(plan) for _ in range(4)]
        claims = {claim.run_id: claim for claim in await bench.claim(limit=4)}
        await damage(database_url, DAMAGES["runs"].format(run=runs[1]))
        fresh = Bench(type(bench.transactor)(bench.store))  # without a memory of its own
        replies, _ = await fresh.transactor.report([report_of(claims[run_id]) for run_id in runs], None)
        assert [type(reply) for reply in replies] == [Accepted, Unreadable, Accepted, Accepted]


async def test_leases_of_other_runs_are_renewed_beside_one_that_cannot_be_read(database_url: str) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(chain("one", 1))
        for _ in range(3):
            await bench.start(plan)
        claims = await bench.claim(limit=3)
        await damage(database_url, DAMAGES["runs"].format(run=claims[1].run_id))
        leases = [
            Lease(tenant=TENANT, run_id=one.run_id, no=one.step.no, fence=one.step.fence, lease=60 * SECOND)
            for one in claims
        ]
        renewed = await bench.store.renew(leases)
        assert {one.run_id for one in renewed} == {claims[0].run_id, claims[2].run_id}


async def test_those_that_wait_for_other_runs_do_not_hear_of_it(database_url: str) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(chain("one", 1))
        bad, good = await bench.start(plan), await bench.start(plan)
        await damage(database_url, DAMAGES["runs"].format(run=bad))
        waiting = RunWaiter(bench.transactor)
        lost = asyncio.create_task(waiting.until(TENANT, bad, RUN_TERMINAL))
        found = asyncio.create_task(waiting.until(TENANT, good, RUN_TERMINAL))
        with pytest.raises(Unreadable, match=bad):
            await lost
        await bench.work_off()
        assert (await found).state is RunState.SUCCEEDED
        await waiting.close()


READS = {
    "a state": ("update runs set state = 'flying' where id = '{run}'", "runs"),
    "a step": ("update steps set state = 'flying' where run_id = '{run}' and no = 1", "steps (no 1)"),
    "a note": ("""update steps set note = '{{"event": 5}}' where run_id = '{run}' and no = 0""", "steps (no 0)"),
    "an attempt": (
        "update attempts set state = 'flown' where run_id = '{run}' and no = 1",
        "attempts (no 1, fence 1)",
    ),
    "an output": (
        "update attempts set output = {bytes} where run_id = '{run}' and no = 0",
        "attempts (no 0, fence 1)",
    ),
    "an entry": ("update journal set body = {bytes} where run_id = '{run}' and seq = 2", "journal (seq 2)"),
    "an input": ("update run_details set input = {bytes} where run_id = '{run}'", "runs"),
}


@pytest.mark.parametrize("what", READS)
async def test_what_is_read_for_people_names_the_run_the_table_and_the_row(
    database_url: str, what: str, tmp_path: Any
) -> None:
    statement, where = READS[what]
    not_json = "x'7b22'" if database_url.startswith("sqlite") else r"'\x7b22'"

    async with on(database_url) as bench:
        plan = await bench.publish(chain("two", 2))
        bad, good = await bench.start(plan), await bench.start(plan)
        await bench.work_off()
        await damage(database_url, statement.format(run=bad, bytes=not_json))
        async with AsyncEngine(database_url, tenant=TENANT) as engine:
            with pytest.raises(Unreadable) as caught:
                await engine.show(bad)
            assert f"run {bad} cannot be read: its row in {where} " in str(caught.value)
            if what in ("a state", "an entry", "an input"):
                with pytest.raises(Unreadable):
                    await engine.log(bad)
                with pytest.raises(Unreadable):
                    await engine.certify(bad)
            assert (await engine.show(good))["run"]["state"] == "succeeded"
            listed = await engine.runs()
            assert good in [run["id"] for run in listed["runs"]]
            pruned = await prune(bench.transactor, Policy(keep=0), tenant=TENANT, folder=tmp_path / "archive")
            assert pruned.deleted == 1
            assert [run_id for run_id, _ in pruned.flawed] == [bad]
            with pytest.raises(NotFound):
                await engine.show(good)


async def test_a_page_of_runs_has_the_others_and_says_which_is_missing(database_url: str) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(chain("one", 1))
        runs = [await bench.start(plan) for _ in range(5)]
        await damage(database_url, f"update runs set rollback = 'sideways' where id = '{runs[3]}'")
        unreadable: list[Unreadable] = []
        found = await bench.store.list_runs(RunFilter(tenant=TENANT), unreadable)
        assert [record.run.id for record in found] == [runs[4], runs[2], runs[1], runs[0]]
        assert [problem.run_id for problem in unreadable] == [runs[3]]
        with pytest.raises(Unreadable, match=runs[3]):
            await bench.store.list_runs(RunFilter(tenant=TENANT))


FINDERS = {
    "all": {},
    "of a workflow": {"workflow": "one"},
    "with a business key": {"business_key": "order-7"},
    "with a correlation id": {"correlation_id": "c-7"},
}


@pytest.mark.parametrize("filters", FINDERS)
async def test_a_run_in_a_state_of_another_version_is_listed_with_it(database_url: str, filters: str) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(chain("one", 1))
        runs = []
        for _ in range(3):
            runs.append(await bench.start(plan, business_key="order-7", correlation_id="c-7"))
            await bench.work_off()  # only one live run has the key
        await damage(database_url, DAMAGES["runs"].format(run=runs[1]))
        listed = await search_runs(bench.transactor, RunFilter(tenant=TENANT, **FINDERS[filters]), Terms())
        assert [run["id"] for run in listed["runs"]] == [runs[2], runs[0]]
        [told] = listed["unreadable"]
        assert (told["id"], told["state"], told["table"]) == (runs[1], "flying", "runs")
        assert "cannot be read" in told["message"]
        which = RunFilter(tenant=TENANT, **FINDERS[filters], limit=0)
        assert (await bench.store.search_runs(which, Words(), 9)).total == 3
        succeeded = await search_runs(bench.transactor, RunFilter(tenant=TENANT, states=(RunState.SUCCEEDED,)), Terms())
        assert "unreadable" not in succeeded, "its state is none of those asked for"


async def test_a_search_reads_on_beyond_a_page_of_runs_that_cannot_be_read(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MOST_IN_ORDER", 2)

    async with on(database_url) as bench:
        plan = await bench.publish(chain("one", 1))
        runs = [await bench.start(plan) for _ in range(6)]
        for run_id in runs[2:5]:
            await damage(database_url, DAMAGES["runs"].format(run=run_id))
        seen, unreadable, before = [], [], None
        for _ in range(4):
            which = RunFilter(tenant=TENANT, before=before)
            found = await search_runs(bench.transactor, which, Terms(text="one"))
            seen += [run["id"] for run in found["runs"]]
            unreadable += [one["id"] for one in found.get("unreadable", [])]
            before = found["next"]
        assert seen == [runs[5], runs[1], runs[0]]
        assert unreadable == [runs[4], runs[3], runs[2]]
        assert (found["is_complete"], before) == (True, None)


async def test_text_that_is_not_unicode_is_the_damage_of_one_run(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/damaged.db"

    async with on(url) as bench:
        plan = await bench.publish(SIGNED)
        runs = [await bench.start(plan) for _ in range(4)]
        await damage(url, f"update steps set error = cast(x'ff' as text) where run_id = '{runs[0]}'")
        await damage(url, f"update runs set error = cast(x'ff' as text) where id = '{runs[2]}'")
        events = [TimeCame(tenant=TENANT, run_id=run_id, actor=ACTOR, no=0) for run_id in runs]
        replies = await bench.transactor.submit_all(events)
        assert [isinstance(reply, Unreadable) for reply in replies] == [True, False, True, False]
        unreadable: list[Unreadable] = []
        found = await bench.store.list_runs(RunFilter(tenant=TENANT), unreadable)
        assert len(found) == 3
        assert [problem.run_id for problem in unreadable] == [runs[2]]
        with pytest.raises(Unreadable, match=runs[0]):
            await bench.store.read_steps(TENANT, runs[0])


DEFINITIONS = {
    "queues": "update definitions set queues = '{{' where name = 'signed'",
    "missing": "delete from definitions where name = 'signed'",
}


@pytest.mark.parametrize("how", DEFINITIONS)
async def test_runs_of_a_definition_that_cannot_be_read_are_refused_and_others_go_on(
    database_url: str, how: str
) -> None:
    async with on(database_url) as bench:
        bad = await bench.start(await bench.publish(SIGNED))
        good = await bench.start(await bench.publish(replace(SIGNED, name="other")))
        await damage(database_url, DEFINITIONS[how].format())
        fresh = Bench(type(bench.transactor)(bench.store))  # a process that has not read the definition yet
        replies = await fresh.transactor.submit_all([approval(bad), approval(good)])
        assert [type(reply) for reply in replies] == [Unreadable, Accepted]
        assert str(replies[0]).startswith(f"run {bad} cannot be read: its row in definitions (id ")


async def test_a_queue_that_cannot_be_read_keeps_no_worker_from_the_others(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with on(database_url) as bench:
        await bench.publish(chain("one", 1))
        await bench.publish(Definition(name="two", version=1, steps=(task("s", executor=Handler(name="other")),)))
        before = await bench.store.list_queues(TENANT)
        assert len(before) == 2
        await damage(database_url, "update queues set spec = '{' where spec like '%other%'")
        assert await bench.store.list_queues(TENANT) == [
            (number, spec) for number, spec in before if spec.name != "other"
        ]
    assert "a row of queues (number" in caplog.text
