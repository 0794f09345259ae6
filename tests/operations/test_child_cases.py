"""A choice whose cases are child runs, on both stores: taken, failed, called back, undone, pinned and certified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import stepkeep as sk
from stepkeep.conformance.words.replay import replay_lines
from stepkeep.dialects.registry import judged
from stepkeep.kernel.composition.versions import compare, obstacles
from stepkeep.kernel.definition import Case, Definition, StepDefinition, Switch
from stepkeep.kernel.errors import InvalidInput, NotFound
from stepkeep.kernel.machine.outcomes import Completed
from stepkeep.kernel.machine.states import OnFailure, Rollback, RunState, StepState
from stepkeep.operations.logs.lines import encode_line
from stepkeep.operations.logs.log import lines_of
from stepkeep.operations.pipeline.expire import sweep_timers
from stepkeep.operations.runs.diagnosis import explain
from stepkeep.operations.runs.sleeping import is_asleep
from stepkeep.operations.runs.views import describe_run
from tests.operations.test_child_maps import BAD, tree
from tests.operations.test_child_rollback import BACK, HOOK, ended, names
from tests.operations.test_children import call, certified, children, finish, flow, look_after
from tests.workbench import SECOND, TENANT, Bench, on, task

S = StepState
LEAF = flow("leaf", task("work", 0, undo=HOOK))
OTHER = flow("other", task("first", 0, undo=HOOK), task("second", 1, ["first"], undo=HOOK))
DIALECTS = ["ioa", "run", "linear", "action", "workstream"]


def choice(*, deadline: int | None = None, on_failure: OnFailure = OnFailure.COMPENSATE) -> StepDefinition:
    """`leaf` for a small number, a handler for a large one, `other` for the rest."""
    cases = (
        Case(name="small", when="input.n < 10", step=call("pick", 0, "leaf", deadline=deadline, undo=BACK)),
        Case(name="large", when="input.n > 99", step=task("pick", 0, undo=HOOK)),
        Case(name="rest", step=replace(call("pick", 0, "other", undo=BACK), inputs={"given": "${{ input.n }}"})),
    )
    return StepDefinition(name="pick", order=0, growth=Switch(max=3, cases=cases), on_failure=on_failure)


def parent(*steps: StepDefinition, **options: Any) -> Definition:
    return flow("parent", *steps, **{"on_failure": OnFailure.COMPENSATE, "grace": 5 * SECOND, **options})


async def begun(bench: Bench, definition: Definition, n: int = 1) -> str:
    for one in (LEAF, OTHER):
        await bench.publish(one)
    run = await bench.start(definition, b'{"n":%d}' % n)
    await look_after(bench)
    return run


@pytest.mark.parametrize(("n", "case", "workflow"), [(1, "small", "leaf"), (50, "rest", "other"), (100, "large", None)])
async def test_the_case_that_is_taken_is_a_child_and_its_output_is_that_of_the_step(
    database_url: str, n: int, case: str, workflow: str | None
) -> None:
    async def body(bench: Bench) -> list[str]:
        run = await begun(bench, parent(choice(), task("after", 1, ["pick"])), n)
        found = await children(bench, run)
        assert [child.workflow for child in found] == ([] if workflow is None else [workflow])
        view = await describe_run(bench.transactor, run, tenant=TENANT)
        [pick] = [step for step in view["steps"] if step["name"] == "pick"]
        assert (pick["kind"], pick["case"]) == ("switch", case)
        if workflow is not None:
            record = await bench.store.read_run(TENANT, run)
            assert record is not None
            assert record.run.state is RunState.BLOCKED
            assert await is_asleep(bench.transactor, record.run), "the end of the child moves it"
            told = await explain(bench.transactor, run, "pick", tenant=TENANT)
            said = " ".join(cause.sentence for cause in told.causes)
            assert f"pick took {case}, and waits for it" in said
            inner = await bench.store.read_run(TENANT, found[0].child_id)
            assert inner is not None
            assert inner.details.input == (b'{"given":50}' if n == 50 else b"null")
        while claims := await bench.claim(20):
            for claim in claims:
                await bench.report(claim, Completed(output=b'{"n":%d}' % n))
            await look_after(bench)
        assert await bench.state(run) is RunState.SUCCEEDED
        outputs = await bench.store.read_outputs([(TENANT, run, 0)])
        assert outputs[TENANT, run, 0] == b'{"n":%d}' % n
        return await tree(bench, run)

    async with on(database_url) as bench:
        runs = await body(bench)
    certified(database_url, *runs)
    with sk.open(database_url) as engine:
        shown = [child["step"] for child in engine.show(runs[0])["run"].get("children", [])]
        assert shown == ([] if workflow is None else ["pick[0]" if n == 1 else "pick[2]"])


async def test_a_child_that_fails_fails_the_choice(database_url: str) -> None:
    async def body(bench: Bench) -> list[str]:
        run = await begun(bench, parent(choice(on_failure=OnFailure.ABORT), on_failure=OnFailure.ABORT))
        [claim] = await bench.claim(5)
        await bench.report(claim, BAD)
        await finish(bench)
        assert await ended(bench, run) == (RunState.FAILED, Rollback.NONE)
        record = await bench.store.read_run(TENANT, run)
        assert record is not None
        assert "pick[0] failed: child run" in (record.run.error or "")
        return await tree(bench, run)

    async with on(database_url) as bench:
        certified(database_url, *await body(bench))


async def test_a_tolerated_choice_is_skipped_with_its_child(database_url: str) -> None:
    async def body(bench: Bench) -> list[str]:
        tolerant = parent(choice(on_failure=OnFailure.SKIP), on_failure=OnFailure.ABORT)
        run = await begun(bench, tolerant)
        [claim] = await bench.claim(5)
        await bench.report(claim, BAD)
        await finish(bench)
        assert await bench.state(run) is RunState.SUCCEEDED
        assert (await names(bench, run))["pick"] is S.SKIPPED
        return await tree(bench, run)

    async with on(database_url) as bench:
        certified(database_url, *await body(bench))


@pytest.mark.parametrize("n", [1, 50])
async def test_a_rollback_undoes_the_child_of_the_case_that_was_taken(database_url: str, n: int) -> None:
    async def body(bench: Bench) -> list[str]:
        last = task("last", 1, ["pick"], on_failure=OnFailure.COMPENSATE)
        run = await begun(bench, parent(choice(), last), n)
        for _ in range(20):
            claims = await bench.claim(20)
            for claim in claims:
                await bench.report(claim, BAD if claim.run_id == run else None)
            await look_after(bench)
            if not claims:
                break
        await finish(bench)
        assert await ended(bench, run) == (RunState.ROLLED_BACK, Rollback.COMPLETE)
        place = "pick[0]" if n == 1 else "pick[2]"
        assert await names(bench, run) == {
            "pick": S.SUCCEEDED, "last": S.FAILED, place: S.SUCCEEDED, f"undo:{place}": S.SUCCEEDED,
        }  # fmt: skip
        [back] = [child for child in await children(bench, run) if child.undoes is not None]
        assert await ended(bench, back.child_id) == (RunState.ROLLED_BACK, Rollback.COMPLETE)
        return await tree(bench, run)

    async with on(database_url) as bench:
        certified(database_url, *await body(bench))


async def test_a_preview_of_the_rollback_names_the_undo_steps_of_the_child(database_url: str) -> None:
    async with on(database_url) as bench:
        run = await begun(bench, parent(choice(), task("after", 1, ["pick"])), 50)
        for _ in range(2):
            [claim] = await bench.claim(5)
            await bench.report(claim)
            await look_after(bench)
    with sk.open(database_url) as engine:
        found = engine.rollback_preview(run)
    undone = [(one["undo"], one["level"]) for one in found["undo"]]
    assert undone == [("undo:pick[2]", 0), ("undo:second", 1), ("undo:first", 1)]


@pytest.mark.parametrize("compensate", [False, True])
@pytest.mark.parametrize("has_ended", [False, True])
async def test_a_cancel_reaches_the_child(database_url: str, compensate: bool, has_ended: bool) -> None:
    async def body(bench: Bench) -> list[str]:
        run = await begun(bench, parent(choice(), task("after", 1, ["pick"])))
        if has_ended:
            [claim] = await bench.claim(5)
            await bench.report(claim)
            await look_after(bench)
        await bench.cancel(run, compensate=compensate)
        await finish(bench)
        undoes = compensate and has_ended
        wanted = (RunState.ROLLED_BACK, Rollback.COMPLETE) if undoes else (RunState.CANCELLED, Rollback.NONE)
        assert await ended(bench, run) == wanted
        [child] = [one for one in await children(bench, run) if one.undoes is None]
        assert await bench.state(child.child_id) is (RunState.SUCCEEDED if has_ended else RunState.CANCELLED)
        return await tree(bench, run)

    async with on(database_url) as bench:
        certified(database_url, *await body(bench))


async def test_the_timeout_of_the_run_and_the_end_of_its_grace_leave_the_child_in_doubt(database_url: str) -> None:
    async def body(bench: Bench) -> list[str]:
        run = await begun(bench, parent(choice(), timeout=30 * SECOND))
        [held] = await bench.claim(5)
        bench.store.clock_offset += 31 * SECOND
        await sweep_timers(bench.transactor)
        assert await bench.state(run) is RunState.STOPPING
        bench.store.clock_offset += 6 * SECOND
        await sweep_timers(bench.transactor)
        assert await ended(bench, run) == (RunState.FAILED, Rollback.PARTIAL)
        await bench.report(held)
        await finish(bench)
        return await tree(bench, run)

    async with on(database_url) as bench:
        certified(database_url, *await body(bench))


async def test_the_deadline_of_the_child_fails_the_choice(database_url: str) -> None:
    async def body(bench: Bench) -> list[str]:
        run = await begun(bench, parent(choice(deadline=10 * SECOND)))
        [held] = await bench.claim(5)
        bench.store.clock_offset += 11 * SECOND
        await sweep_timers(bench.transactor)
        states = await names(bench, run)
        assert (states["pick"], states["pick[0]"]) == (S.FAILED, S.FAILED)
        await look_after(bench)
        await bench.report(held)
        await finish(bench)
        [child] = await children(bench, run)
        assert await bench.state(child.child_id) in (RunState.ROLLED_BACK, RunState.CANCELLED)
        assert await ended(bench, run) == (RunState.FAILED, Rollback.PARTIAL), "the child had not ended"
        return await tree(bench, run)

    async with on(database_url) as bench:
        certified(database_url, *await body(bench))


# -- versions ----------------------------------------------------------------------------------------------------------
def pins(definition: Definition) -> list[int]:
    growth = definition.steps[0].growth
    assert isinstance(growth, Switch)
    return [case.step.child.version for case in growth.cases if case.step.child]


def unpinned() -> Definition:
    """Two cases with the same workflow: the newest version, and the first."""
    cases = (
        Case(name="newest", when="input.n < 10", step=call("pick", 0, "leaf", version=0, undo=BACK)),
        Case(name="first", step=call("pick", 0, "leaf", version=1, undo=BACK)),
    )
    return parent(StepDefinition(name="pick", order=0, growth=Switch(max=2, cases=cases)))


async def test_each_case_is_pinned_by_itself_and_publishing_again_changes_nothing(database_url: str) -> None:
    async with on(database_url) as bench:
        with pytest.raises(NotFound, match="step pick starts the workflow"):
            await bench.publish(unpinned())
        for version in (1, 2):
            await bench.publish(replace(LEAF, version=version))
        first = await bench.publish(unpinned())
        assert pins(first.definition) == [2, 1]
        await bench.publish(replace(LEAF, version=3))
        again = await bench.publish(unpinned())
        assert again.digest == first.digest
        later = await bench.publish(replace(unpinned(), version=2))
        assert pins(later.definition) == [3, 1]
        [change] = compare(first.definition, later.definition).steps
        assert [(one.field, one.kind) for one in change.differences] == [("growth", "setting")]
        assert list(obstacles(first.definition, later.definition, ["pick"])) == []


def test_another_workflow_of_a_case_is_another_meaning() -> None:
    growth = unpinned().steps[0].growth
    assert isinstance(growth, Switch)
    first, second = growth.cases
    child = replace(second.step.child, workflow="other")  # type: ignore[type-var]
    other = replace(growth, cases=(first, replace(second, step=replace(second.step, child=child))))
    new = parent(StepDefinition(name="pick", order=0, growth=other))
    [obstacle] = obstacles(unpinned(), new, ["pick"])
    assert obstacle == "step pick began, and its growth differs"


async def test_a_choice_counts_with_its_largest_case_and_cannot_start_itself(database_url: str) -> None:
    async with on(database_url) as bench:
        await bench.publish(LEAF)
        wide = [call(f"c{n}", n, "leaf", tuple(() if n == 0 else [f"c{n - 1}"])) for n in range(30)]
        await bench.publish(flow("wide", *wide))
        cases = tuple(
            Case(name=name, when=None if name == "leaf" else "input.n < 1", step=call("pick", 0, name))
            for name in ("wide", "leaf")
        )
        one = StepDefinition(name="pick", order=0, growth=Switch(max=2, cases=cases))
        await bench.publish(parent(*(replace(one, name=f"p{n}", order=n) for n in range(32))))
        with pytest.raises(InvalidInput, match="would come to 1024 runs"):
            await bench.publish(replace(parent(*(replace(one, name=f"p{n}", order=n) for n in range(33))), version=2))
        self = tuple(replace(case, step=call("pick", 0, "parent")) for case in cases)
        with pytest.raises(InvalidInput, match="starts parent itself"):
            await bench.publish(parent(replace(one, growth=Switch(max=2, cases=self))))


# -- dialects ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_choice_of_children_is_right_in_every_dialect(tmp_path: Path, dialect: str) -> None:
    lines: list[dict[str, Any]] = []

    async with on(f"sqlite:///{tmp_path / 'log.db'}") as bench:
        last = task("last", 1, ["pick"], on_failure=OnFailure.COMPENSATE)
        definition = parent(choice(), last)
        run = await begun(bench, definition)
        for _ in range(20):
            for claim in await bench.claim(20):
                await bench.report(claim, BAD if claim.run_id == run else None)
            await look_after(bench)
        assert await bench.state(run) is RunState.ROLLED_BACK
        [whole] = await bench.store.read_whole(TENANT, [run])
        lines.extend(lines_of(whole, await bench.publish(definition), dialect))
    assert replay_lines([encode_line(line) for line in lines], judged(dialect)).findings == ()
