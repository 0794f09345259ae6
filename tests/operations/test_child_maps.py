"""Maps and loops whose elements are child runs, on both stores: bounded, joined, stopped, undone and certified."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from msgspec.structs import replace

import stepkeep as sk
from stepkeep.kernel.definition import Definition, Loop, Map, Retry, StepDefinition
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.outcomes import Completed, Failed, Released
from stepkeep.kernel.machine.rows import Child
from stepkeep.kernel.machine.states import Category, OnFailure, Rollback, RunState, StepState
from stepkeep.operations.pipeline.expire import sweep_timers
from tests.operations.test_child_rollback import BACK, HOOK, ended, names
from tests.operations.test_children import PROCESS, call, certified, children, finish, flow, look_after
from tests.suites import first_on, in_proof
from tests.workbench import SECOND, TENANT, Bench, on, task
from tests.worker.bed import PAST_THE_LEASE_US

S = StepState
BAD = Failed(category=Category.VALIDATION, error="no", final=True)
LEAF = flow("leaf", task("work", 0, undo=HOOK))


def each(workflow: str = "leaf", after: tuple[str, ...] = (), **growth: Any) -> StepDefinition:
    """A map of child runs over the input."""
    settings = {name: growth.pop(name) for name in ("on_failure", "undo", "effect") if name in growth}
    deadline = growth.pop("child_deadline", None)
    over = Map(over="${{ input }}", **{"max": 20, "in_flight": 2, **growth})
    one = call(
        "each", 0, workflow, after, deadline=deadline, **{"undo": BACK, "on_failure": OnFailure.COMPENSATE, **settings}
    )
    return replace(one, growth=over, inputs={"n": "${{ item }}", "at": "${{ index }}"})


def parent(*steps: StepDefinition, **options: Any) -> Definition:
    return flow("parent", *steps, **{"on_failure": OnFailure.COMPENSATE, "grace": 5 * SECOND, **options})


async def live(bench: Bench, run: str) -> list[Child]:
    """The children of a run that have started and not ended, in the order of the list."""
    found = await children(bench, run)
    return sorted((child for child in found if child.state == "started"), key=lambda child: child.no)


async def begun(bench: Bench, definition: Definition, given: bytes = b"[1,2,3]") -> str:
    await bench.publish(LEAF)
    run = await bench.start(definition, given)
    await look_after(bench)
    return run


async def settle(bench: Bench, child: Child, outcome: Any) -> None:
    """Claim the work of this child, and report it."""
    for claim in await bench.claim(20):
        if claim.run_id == child.child_id:
            await bench.report(claim, outcome)
        else:
            await bench.report(claim, Released())
    await look_after(bench)


async def tree(bench: Bench, run: str) -> list[str]:
    runs = [run]
    for one in runs:
        runs += [child.child_id for child in await children(bench, one) if child.started_at is not None]
    return runs


async def test_each_element_is_a_child_with_its_item_and_the_results_are_joined_in_order(database_url: str) -> None:
    async def body(bench: Bench) -> list[str]:
        run = await begun(bench, parent(each(), task("after", 1, ["each"])), b"[7,8,9]")
        assert len(await live(bench, run)) == 2, "no more than are in flight"
        while claims := await bench.claim(20):
            for claim in sorted(claims, key=lambda one: one.run_id, reverse=True):
                record = await bench.store.read_run(TENANT, claim.run_id)
                assert record is not None
                await bench.report(claim, Completed(output=b'{"did":%s}' % record.details.input))
            await look_after(bench)
        assert await bench.state(run) is RunState.SUCCEEDED
        outputs = await bench.store.read_outputs([(TENANT, run, 0)])
        wanted = b",".join(b'{"did":{"at":%d,"n":%d}}' % (at, 7 + at) for at in range(3))
        assert outputs[TENANT, run, 0] == b"[%s]" % wanted
        return await tree(bench, run)

    async with on(database_url) as bench:
        certified(database_url, *await body(bench))


async def test_a_loop_starts_one_child_after_the_other_and_hands_the_last_output_on(database_url: str) -> None:
    async def body(bench: Bench) -> list[str]:
        loop = Loop(max=5, until="last >= 2", pause=SECOND)
        one = replace(call("turn", 0, "leaf", undo=BACK), growth=loop, inputs={"before": "${{ last }}"})
        run = await begun(bench, parent(one), b"{}")
        given = []
        for turn in range(3):
            [claim] = await bench.claim(5)
            record = await bench.store.read_run(TENANT, claim.run_id)
            assert record is not None
            given.append(record.details.input)
            await bench.report(claim, Completed(output=b"%d" % turn))
            await look_after(bench)
            bench.store.clock_offset += SECOND
            await sweep_timers(bench.transactor)
            await look_after(bench)
        assert given == [b'{"before":null}', b'{"before":0}', b'{"before":1}']
        assert await bench.state(run) is RunState.SUCCEEDED
        assert (await bench.store.read_outputs([(TENANT, run, 0)]))[TENANT, run, 0] == b"2"
        return await tree(bench, run)

    async with on(database_url) as bench:
        certified(database_url, *await body(bench))


async def test_a_tolerated_child_leaves_null_and_one_more_stops_the_map(database_url: str) -> None:
    async def body(bench: Bench) -> list[str]:
        calm = await begun(bench, parent(each(tolerate=1, in_flight=3)))
        await settle(bench, (await live(bench, calm))[1], BAD)
        await finish(bench)
        assert await bench.state(calm) is RunState.SUCCEEDED
        joined = (await bench.store.read_outputs([(TENANT, calm, 0)]))[TENANT, calm, 0]
        assert joined == b'[{"ok":true},null,{"ok":true}]'
        assert (await names(bench, calm))["each[1]"] is S.SKIPPED

        strict = await begun(bench, replace(parent(each(in_flight=3)), name="strict"))
        first, _, third = await live(bench, strict)
        await settle(bench, first, Completed(output=b"1"))
        await settle(bench, third, BAD)
        await finish(bench)
        assert await ended(bench, strict) == (RunState.ROLLED_BACK, Rollback.COMPLETE)
        assert await names(bench, strict) == {
            "each": S.FAILED,
            "each[0]": S.SUCCEEDED,
            "each[1]": S.CANCELLED,
            "each[2]": S.FAILED,
            "undo:each[0]": S.SUCCEEDED,
        }
        record = await bench.store.read_run(TENANT, strict)
        assert record is not None
        assert "each[2] failed: child run" in (record.run.error or "")
        return [*await tree(bench, calm), *await tree(bench, strict)]

    async with on(database_url) as bench:
        certified(database_url, *await body(bench))


async def test_a_map_that_does_not_stop_early_lets_every_child_run(database_url: str) -> None:
    async def body(bench: Bench) -> list[str]:
        run = await begun(bench, parent(each(in_flight=1, early_stop=False, on_failure=OnFailure.ABORT)))
        await settle(bench, (await live(bench, run))[0], BAD)
        await finish(bench)
        assert await bench.state(run) is RunState.FAILED
        assert (await names(bench, run))["each[2]"] is S.SUCCEEDED
        return await tree(bench, run)

    async with on(database_url) as bench:
        certified(database_url, *await body(bench))


@pytest.mark.parametrize("in_time", [True, False])
async def test_a_map_that_stops_waits_within_its_grace_for_the_children_it_called_back(
    database_url: str, in_time: bool
) -> None:
    async def body(bench: Bench) -> list[str]:
        run = await begun(bench, parent(each(in_flight=2)))
        held = {claim.run_id: claim for claim in await bench.claim(20)}
        first, second = await live(bench, run)
        await bench.report(held[first.child_id], BAD)
        await look_after(bench)
        states = await names(bench, run)
        assert (states["each"], states["each[0]"], states["each[1]"]) == (
            S.AWAITING_CHILDREN,
            S.FAILED,
            S.AWAITING_CHILDREN,
        )
        assert await bench.state(second.child_id) is RunState.STOPPING, "it was called back"
        if in_time:
            await bench.report(held[second.child_id], Completed(output=b"1"))
            await finish(bench)
        bench.store.clock_offset += 6 * SECOND
        await sweep_timers(bench.transactor)
        assert (await names(bench, run))["each[1]"] is S.CANCELLED
        wanted = (RunState.FAILED, Rollback.NONE if in_time else Rollback.PARTIAL)
        assert await ended(bench, run) == wanted
        await finish(bench)
        return await tree(bench, run)

    async with on(database_url) as bench:
        certified(database_url, *await body(bench))


async def test_the_deadline_of_a_map_leaves_its_children_in_doubt(database_url: str) -> None:
    async def body(bench: Bench) -> list[str]:
        run = await begun(bench, parent(each(deadline=10 * SECOND)))
        held = await bench.claim(20)
        bench.store.clock_offset += 11 * SECOND
        await sweep_timers(bench.transactor)
        states = await names(bench, run)
        assert (states["each"], states["each[0]"]) == (S.FAILED, S.CANCELLED)
        rows = {row.no: row for row in await bench.store.read_steps(TENANT, run)}
        assert sum("IN_DOUBT" in (row.error or "") for row in rows.values()) == 2
        assert await ended(bench, run) == (RunState.FAILED, Rollback.PARTIAL)
        await look_after(bench)
        for claim in held:
            await bench.report(claim)
        await finish(bench)
        for child in await children(bench, run):
            assert await bench.state(child.child_id) in (RunState.ROLLED_BACK, RunState.CANCELLED)
        return await tree(bench, run)

    async with on(database_url) as bench:
        certified(database_url, *await body(bench))


async def test_the_deadline_of_one_child_fails_its_element_alone(database_url: str) -> None:
    async def body(bench: Bench) -> list[str]:
        run = await begun(bench, parent(each(in_flight=1, tolerate=1, child_deadline=10 * SECOND)), b"[1,2]")
        [held] = await bench.claim(20)
        bench.store.clock_offset += 11 * SECOND
        await sweep_timers(bench.transactor)
        await look_after(bench)
        await bench.report(held)
        await finish(bench)
        assert await bench.state(run) is RunState.SUCCEEDED
        states = await names(bench, run)
        assert (states["each[0]"], states["each[1]"]) == (S.SKIPPED, S.SUCCEEDED)
        return await tree(bench, run)

    async with on(database_url) as bench:
        certified(database_url, *await body(bench))


@pytest.mark.parametrize("compensate", [False, True])
async def test_a_cancel_reaches_every_child_and_undoes_those_that_ended(database_url: str, compensate: bool) -> None:
    async def body(bench: Bench) -> list[str]:
        run = await begun(bench, parent(each()))
        await settle(bench, (await live(bench, run))[0], Completed(output=b"1"))
        await bench.cancel(run, compensate=compensate)
        await finish(bench)
        wanted = (RunState.ROLLED_BACK, Rollback.COMPLETE) if compensate else (RunState.CANCELLED, Rollback.NONE)
        assert await ended(bench, run) == wanted
        for one in await tree(bench, run):
            assert await bench.state(one) in (RunState.CANCELLED, RunState.ROLLED_BACK, RunState.SUCCEEDED)
        backs = [child for child in await children(bench, run) if child.undoes is not None]
        assert len(backs) == compensate
        return await tree(bench, run)

    async with on(database_url) as bench:
        certified(database_url, *await body(bench))


async def test_the_timeout_of_the_run_and_the_end_of_its_grace_leave_children_in_doubt(database_url: str) -> None:
    async def body(bench: Bench) -> list[str]:
        run = await begun(bench, parent(each(), timeout=30 * SECOND))
        bench.store.clock_offset += 31 * SECOND
        await sweep_timers(bench.transactor)
        assert await bench.state(run) is RunState.STOPPING
        bench.store.clock_offset += 6 * SECOND
        await sweep_timers(bench.transactor)
        assert await ended(bench, run) == (RunState.FAILED, Rollback.PARTIAL)
        await finish(bench)
        return await tree(bench, run)

    async with on(database_url) as bench:
        certified(database_url, *await body(bench))


async def test_a_tree_of_three_levels_of_maps_is_rolled_back_from_the_top_down(database_url: str) -> None:
    async with on(database_url) as bench:
        await bench.publish(LEAF)
        inner = replace(each(), inputs=None)
        middle = replace(inner.growth, over="${{ [1, 2] }}")  # type: ignore[arg-type]
        await bench.publish(flow("middle", replace(inner, name="inner", growth=middle)))
        last = task("last", 1, ["each"], on_failure=OnFailure.COMPENSATE)
        run = await bench.start(parent(each("middle"), last), b"[1,2]")
        for _ in range(50):
            await look_after(bench)
            claims = await bench.claim(20)
            for claim in claims:
                await bench.report(claim, BAD if claim.run_id == run else None)
            if not claims:
                break
        await finish(bench)
        assert await ended(bench, run) == (RunState.ROLLED_BACK, Rollback.COMPLETE)
        runs = await tree(bench, run)
        assert len(runs) == 1 + 2 * 2 + 4 * 2
    certified(database_url, *runs[:3])
    with sk.open(database_url) as engine:
        shown = engine.show(runs[0])
        assert [child["step"] for child in shown["run"]["children"]][:2] == ["each[0]", "each[1]"]
        assert engine.certify(runs[0]).tree is not None


async def test_a_preview_names_the_children_of_every_element(database_url: str) -> None:
    async with on(database_url) as bench:
        run = await begun(bench, parent(each()))
        await settle(bench, (await live(bench, run))[0], Completed(output=b"1"))
    with sk.open(database_url) as engine:
        found = engine.rollback_preview(run)
    undone = [(one["undo"], one["level"]) for one in found["undo"]]
    assert undone[-2:] == [("undo:each[0]", 0), ("undo:work", 1)]
    assert {one["step"] for one in found["running"]} >= {"each[1]", "each[2]"}


async def test_the_size_of_a_tree_counts_every_element(database_url: str) -> None:
    async with on(database_url) as bench:
        await bench.publish(LEAF)
        await bench.publish(flow("wide", each(max=40)))
        with pytest.raises(InvalidInput, match=r"would come to 1026 runs.*smaller one"):
            await bench.publish(parent(each("wide", max=25)))
        await bench.publish(parent(each("wide", max=24)))


@first_on("sqlite")
@pytest.mark.parametrize(("items", "step"), [(4, 9), in_proof(20, 1)])
async def test_a_map_of_children_survives_workers_that_are_killed_after_their_commits(
    database_url: str, items: int, step: int
) -> None:
    async def begin(bench: Bench) -> str:
        # Each death may lose the same step: it is never given up for that.
        await bench.publish(flow("leaf", task("work", 0, undo=HOOK, retry=Retry(max_losses=1_000))))
        given = b"[%s]" % b",".join(b"%d" % n for n in range(items))
        return await bench.start(parent(each(in_flight=4)), given)

    async def look(bench: Bench) -> tuple[list[str], list[RunState]]:
        runs = await tree(bench, run)
        return runs, [await bench.state(one) for one in runs]

    async with on(database_url) as bench:
        run, killed = await begin(bench), 0
    for commits in range(1, 400, step):
        command = [sys.executable, str(PROCESS), database_url, run, str(commits), str(killed * PAST_THE_LEASE_US)]
        died = subprocess.run(command, check=False, timeout=120, capture_output=True, text=True)
        assert died.returncode in (0, -9), died.stderr
        killed += died.returncode == -9
        if died.returncode == 0:
            break
    assert killed > 0
    async with on(database_url) as bench:
        runs, states = await look(bench)
    assert states == [RunState.SUCCEEDED] * (items + 1)
    certified(database_url, run, *runs[1:3])
