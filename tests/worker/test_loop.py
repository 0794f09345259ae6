"""The worker on a real store: claims, reports, chains, retries, waits, rules, undo (design, sections 3 and 6)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from tests.workbench import count_calls, eventually, until
from tests.worker.bed import QUICK, TENANT, On, step

from stepkeep.kernel.definition import Command, Completion, Definition, Handler, Retry, Rule, Undo
from stepkeep.kernel.errors import InvalidInput, InvariantBroken
from stepkeep.kernel.machine.events import CompletionSignalled, ManualOutcome, MessageArrived
from stepkeep.kernel.machine.outcomes import Completed
from stepkeep.kernel.machine.states import AttemptState, Category, OnFailure, RunState, StepState, WorkerState
from stepkeep.operations.pipeline.group_commit import DIVIDED
from stepkeep.worker.answers import fail, retry_in, wait_for
from stepkeep.worker.attempts.results import token_digest


async def test_a_chain_of_steps_passes_its_outputs_on(on_store: On) -> None:
    async with on_store() as bed:

        async def first(n: int) -> dict[str, int]:
            return {"n": n + 1}

        def second(n: int) -> int:
            return n * 10

        def third(ctx, total):
            return [total, ctx.outputs["first"], ctx.input]

        bed.handler("first", first)
        bed.handler("second", second)
        bed.handler("third", third)
        run_id = await bed.start(
            step("first", order=0, inputs="${{ input }}"),
            step("second", "first", order=1, inputs={"n": "${{ steps.first.output.n }}"}),
            step("third", "second", order=2, inputs={"total": "${{ steps.second.output }}"}),
            given={"n": 1},
        )
        assert await bed.finish(run_id) is RunState.SUCCEEDED
        assert await bed.output(run_id, 2) == [20, {"n": 2}, {"n": 1}]
        assert [attempt.state for attempt in await bed.attempts(run_id)] == [AttemptState.SUCCEEDED] * 3


async def test_many_runs_of_a_wide_workflow_finish(on_store: On) -> None:
    async with on_store() as bed:

        async def work() -> int:
            return 1

        def join() -> int:
            return 2

        bed.handler("work", work)
        bed.handler("join", join)
        leaves = [f"leaf-{n}" for n in range(20)]
        steps = [step("root", uses="work"), *(step(leaf, "root", order=1, uses="work") for leaf in leaves)]
        steps.append(step("join", *leaves, order=2))
        runs = [await bed.start(*steps)]
        plan = bed.transactor.plans.get((await bed.run(runs[0])).definition_id)
        runs += [await bed.start_again(plan) for _ in range(10)]
        assert await bed.finish(*runs) is RunState.SUCCEEDED
        for run_id in runs:
            assert set(await bed.states(run_id)) == {"succeeded"}


async def test_a_failing_step_is_retried_until_it_succeeds(on_store: On) -> None:
    async with on_store() as bed:
        seen = []

        async def flaky(ctx):
            seen.append((ctx.attempt, ctx.idempotency_key))
            if len(seen) < 3:
                raise ConnectionError("not yet")
            return "done"

        bed.handler("flaky", flaky)
        run_id = await bed.start(step("flaky", retry=Retry(initial=1000)))
        assert await bed.finish(run_id) is RunState.SUCCEEDED
        assert [number for number, _ in seen] == [1, 2, 3]
        assert len({key for _, key in seen}) == 1
        states = [(attempt.state, attempt.category) for attempt in await bed.attempts(run_id)]
        assert states == [(AttemptState.FAILED, Category.TRANSIENT)] * 2 + [(AttemptState.SUCCEEDED, None)]


@pytest.mark.parametrize("said", [lambda: fail("no"), lambda: {"x": float("nan")}])
async def test_what_can_never_work_is_not_tried_again(on_store: On, said: Callable[[], object]) -> None:
    async with on_store() as bed:
        bed.handler("hopeless", lambda: said())
        run_id = await bed.start(step("hopeless"))
        assert await bed.finish(run_id) is RunState.FAILED
        assert [attempt.category for attempt in await bed.attempts(run_id)] == [Category.VALIDATION]


async def test_a_template_that_cannot_be_rendered_fails_the_step_for_good(on_store: On) -> None:
    async with on_store() as bed:
        bed.handler("mail", lambda to: to)
        run_id = await bed.start(step("mail", inputs={"to": "${{ input.email.address }}"}), given={"email": None})
        assert await bed.finish(run_id) is RunState.FAILED
        [attempt] = await bed.attempts(run_id)
        assert attempt.category is Category.VALIDATION
        assert "input" in (attempt.error or "")


async def test_a_handler_asks_for_its_own_pause(on_store: On) -> None:
    async with on_store() as bed:
        seen = []

        def patient():
            seen.append(1)
            return retry_in("1h", "later") if len(seen) == 1 else "done"

        bed.handler("patient", patient)
        run_id = await bed.start(step("patient"))
        await bed.worker().run_until(bed.step_is(run_id, 0, StepState.RETRYING))
        bed.store.clock_offset += 3_600_000_000
        assert await bed.finish(run_id) is RunState.SUCCEEDED


async def test_a_step_that_waits_is_woken_by_its_message_and_told_which(on_store: On) -> None:
    async with on_store() as bed:

        def pay(ctx):
            if ctx.woken_by is None:
                return wait_for("paid", timeout="1d", emit=[("payment.requested", {"n": 1})])
            return [ctx.woken_by.name, ctx.woken_by.payload, ctx.attempt]

        bed.handler("pay", pay)
        run_id = await bed.start(step("pay"))
        await bed.worker().run_until(bed.step_is(run_id, 0, StepState.AWAITING_EVENT))
        assert [entry.name for entry in await bed.store.read_outbox("default", run_id)] == ["payment.requested"]
        message = MessageArrived(
            tenant="default", run_id=run_id, actor="bank", id="m1", name="paid", payload=b'{"amount":5}'
        )
        await bed.transactor.submit(message)
        assert await bed.finish(run_id) is RunState.SUCCEEDED
        assert await bed.output(run_id, 0) == ["paid", {"amount": 5}, 1]


async def test_a_wait_that_nobody_answers_comes_back_as_a_timeout(on_store: On) -> None:
    async with on_store() as bed:
        bed.handler("pay", lambda ctx: ctx.woken_by.timed_out if ctx.woken_by else wait_for("paid", timeout="1d"))
        run_id = await bed.start(step("pay"))
        await bed.worker().run_until(bed.step_is(run_id, 0, StepState.AWAITING_EVENT))
        bed.store.clock_offset += 90_000_000_000
        assert await bed.finish(run_id) is RunState.SUCCEEDED
        assert await bed.output(run_id, 0) is True


async def test_rules_judge_a_result_before_it_counts(on_store: On) -> None:
    async with on_store() as bed:
        bed.handler("count", lambda n: {"rows": n})
        rules = (Rule(expression="output.rows > 0", message="nothing was counted"),)
        good = await bed.start(step("count", inputs="${{ input }}", rules=rules), given={"n": 3})
        plan = bed.transactor.plans.get((await bed.run(good)).definition_id)
        bad = await bed.start_again(plan, {"n": 0})
        assert await bed.finish(good, bad) is RunState.SUCCEEDED
        failed = await bed.run(bad)
        assert (failed.state, failed.error) == (RunState.FAILED, "nothing was counted (output.rows = 0)")


async def test_rules_may_look_at_other_steps_and_run_level_rules_at_all_of_them(on_store: On) -> None:
    async with on_store() as bed:
        bed.handler("a", lambda: 1)
        bed.handler("b", lambda: 2)
        run_id = await bed.start(
            step("a", order=0),
            step("b", "a", order=1, rules=(Rule(expression="output > steps.a.output"),)),
            rules=(Rule(expression="steps.a.state == 'succeeded' && steps.b.output == 2"),),
        )
        assert await bed.finish(run_id) is RunState.SUCCEEDED


async def test_a_rule_that_cannot_be_evaluated_fails_the_step_with_its_words(on_store: On) -> None:
    async with on_store() as bed:
        bed.handler("a", lambda: {"x": 1})
        run_id = await bed.start(step("a", rules=(Rule(expression="output.y > 1"),)))
        assert await bed.finish(run_id) is RunState.FAILED
        assert "cannot be evaluated" in ((await bed.run(run_id)).error or "")


async def test_undo_hooks_run_in_reverse_with_what_their_steps_returned(on_store: On) -> None:
    async with on_store() as bed:
        undone = []
        bed.handler("make", lambda ctx: {"made": ctx.step})

        def unmake(ctx, made):
            undone.append((made, ctx.idempotency_key, ctx.undoing))

        def explode():
            raise fail("boom")

        bed.handler("unmake", unmake)
        bed.handler("explode", explode)

        def hook(name: str) -> Undo:
            return Undo(executor=Handler(name="unmake"), inputs=f'${{{{ steps["{name}"].output }}}}')

        run_id = await bed.start(
            step("one", order=0, uses="make", undo=hook("one")),
            step("two", "one", order=1, uses="make", undo=hook("two")),
            step("explode", "two", order=2, on_failure=OnFailure.COMPENSATE),
        )
        assert await bed.finish(run_id) is RunState.ROLLED_BACK
        assert undone == [(name, f"{run_id}:{name}:compensate", True) for name in ("two", "one")]


async def test_a_command_step_runs_end_to_end_with_its_arguments_filled_in(on_store: On) -> None:
    async with on_store() as bed:
        command = Command(argv=("echo", "-n", "${{ input.n }}", "is ${{ input.word }}"), env={"N": "${{ input.n }}"})
        run_id = await bed.start(step("say", executor=command), given={"n": 7, "word": "odd; rm -rf"})
        assert await bed.finish(run_id) is RunState.SUCCEEDED
        assert (await bed.output(run_id, 0))["stdout"] == "7 is odd; rm -rf"


async def test_steps_of_other_workers_are_left_alone(on_store: On) -> None:
    async with on_store() as bed:
        bed.handler("mine", lambda: 1)
        run_id = await bed.start(
            step("mine", order=0), step("theirs", order=0), step("gpu", order=0, uses="mine", capabilities=("gpu",))
        )
        await bed.worker().run_until(bed.step_is(run_id, 1, StepState.SUCCEEDED))
        states = await bed.states(run_id)
        assert sorted(states) == ["ready", "ready", "succeeded"]
        bed.handler("theirs", lambda: 2)
        assert await bed.finish(run_id, capabilities=["gpu"]) is RunState.SUCCEEDED


async def test_a_worker_registers_works_and_leaves_a_journal_behind(on_store: On) -> None:
    async with on_store() as bed:
        bed.handler("a", lambda: 1)
        run_id = await bed.start(step("a"))
        worker = bed.worker(app="billing")
        await worker.run_until(bed.ended(run_id))
        [row] = await bed.store.list_workers("default")
        assert row.id == worker.id
        assert row.id.startswith("billing:")
        assert row.state == "shutdown"


async def test_a_step_completed_by_hand_is_judged_by_its_rules_afterwards(on_store: On) -> None:
    async with on_store() as bed:
        tokens = []
        bed.handler("ask", lambda ctx: tokens.append(ctx.completion_token))
        rules = (Rule(expression="output.ok"),)
        run_id = await bed.start(step("ask", completion=Completion.MANUAL, rules=rules))
        await bed.worker().run_until(bed.step_is(run_id, 0, StepState.AWAITING_COMPLETION))
        await bed.transactor.submit(
            CompletionSignalled(
                tenant="default",
                run_id=run_id,
                actor="ada",
                no=0,
                token=token_digest(tokens[0]),
                outcome=ManualOutcome.SUCCEEDED,
                output=b'{"ok":true}',
            )
        )
        assert await bed.finish(run_id) is RunState.SUCCEEDED


async def test_a_fan_wider_than_the_worker_is_worked_off_without_waiting_for_idle_polls(on_store: On) -> None:
    async with on_store() as bed:

        async def work() -> int:
            return 1

        bed.handler("work", work)
        leaves = [step(f"leaf-{n}", "root", order=1, uses="work") for n in range(200)]
        run_id = await bed.start(step("root", uses="work"), *leaves)
        patient = replace(QUICK, concurrency=4, idle_poll_seconds=3600.0)
        assert await bed.finish(run_id, settings=patient) is RunState.SUCCEEDED


async def test_one_report_that_cannot_be_processed_does_not_take_its_batch_with_it(
    on_store: On, caplog: pytest.LogCaptureFixture
) -> None:
    async with on_store() as bed:
        bed.handler("work", lambda: 1)
        runs = [await bed.start(step("work"))]
        plan = bed.transactor.plans.get((await bed.run(runs[0])).definition_id)
        runs += [await bed.start_again(plan) for _ in range(9)]
        cursed, real = runs[4], bed.transactor.report

        async def report(events, claimer):
            if any(event.run_id == cursed for event in events):
                raise InvariantBroken("a defect")
            return await real(events, claimer)

        bed.transactor.report = report  # type: ignore[method-assign]
        await bed.worker().run_until(bed.ended(*(run_id for run_id in runs if run_id != cursed)))
        assert (await bed.steps(cursed))[0].state is StepState.RUNNING
    assert any("cannot be processed" in record.message for record in caplog.records)


async def test_an_answer_that_cannot_be_recorded_is_a_failure_that_can(on_store: On) -> None:
    async with on_store() as bed:
        bed.handler("work", lambda: 1)
        run_id, real = await bed.start(step("work")), bed.transactor.report

        async def report(events, claimer):
            if any(isinstance(event.outcome, Completed) for event in events):
                raise InvalidInput("no row can hold this")
            return await real(events, claimer)

        bed.transactor.report = report  # type: ignore[method-assign]
        assert await bed.finish(run_id) is RunState.FAILED
        [attempt] = await bed.attempts(run_id)
        assert (attempt.category, attempt.state) == (Category.VALIDATION, AttemptState.FAILED)
        assert attempt.error is not None
        assert "no row can hold this" in attempt.error


async def test_a_handler_reads_outputs_that_nobody_loaded_for_it(on_store: On) -> None:
    async with on_store() as bed:
        bed.handler("a", lambda: {"x": 1})
        bed.handler("c", lambda ctx: [ctx.outputs["a"], sorted(ctx.outputs)])
        run_id = await bed.start(step("a"), step("b", "a", order=1, uses="a"), step("c", "b", order=2))
        assert await bed.finish(run_id) is RunState.SUCCEEDED
        assert await bed.output(run_id, 2) == [{"x": 1}, ["a", "b"]]


async def test_what_stops_the_loop_by_force_still_hands_back_what_it_holds(on_store: On) -> None:
    async with on_store() as bed:
        started = asyncio.Event()

        async def endless() -> None:
            await asyncio.sleep(600)

        async def look() -> bool:
            if worker.held:
                started.set()
            return False

        bed.handler("endless", endless)
        run_id = await bed.start(step("endless"))
        worker = bed.worker()
        task = asyncio.create_task(worker.run_until(look))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await bed.states(run_id) == ["ready"]


async def test_a_chained_claim_that_arrives_while_draining_is_handed_back(on_store: On) -> None:
    async with on_store() as bed:
        bed.handler("work", lambda: 1)
        run_id = await bed.start(step("first", uses="work"), step("second", "first", order=1, uses="work"))
        worker, real = bed.worker(), bed.transactor.report

        async def is_draining() -> bool:
            [row] = await bed.store.list_workers(TENANT)
            return row.state is WorkerState.DRAINING and not worker._shared.may_claim

        async def report(events, claimer):
            # The report is on its way, with room for more, when the worker is told to stop at once.
            if claimer is not None:
                worker.stop(0.0)
                await eventually(is_draining)
            return await real(events, claimer)

        bed.transactor.report = report  # type: ignore[method-assign]
        async with asyncio.timeout(30):
            await worker.serve()
        assert await bed.states(run_id) == ["succeeded", "ready"]
        assert [each.state for each in await bed.attempts(run_id)] == [AttemptState.SUCCEEDED, AttemptState.RELEASED]


@pytest.mark.postgres
async def test_the_whole_of_it_works_on_postgresql(on_postgres: On) -> None:
    async with on_postgres() as bed:

        async def first(n: int) -> dict[str, int]:
            return {"n": n + 1}

        bed.handler("first", first)
        bed.handler("second", lambda ctx, n: [n, ctx.outputs["first"]])
        run_id = await bed.start(
            step("first", inputs="${{ input }}"),
            step("second", "first", order=1, inputs={"n": "${{ steps.first.output.n }}"}),
            given={"n": 1},
        )
        plan = bed.transactor.plans.get((await bed.run(run_id)).definition_id)
        more = [await bed.start_again(plan, {"n": n}) for n in range(50)]
        assert await bed.finish(run_id, *more) is RunState.SUCCEEDED
        assert await bed.output(more[7], 1) == [8, {"n": 8}]


async def test_an_output_that_a_later_step_reads_is_read_from_the_database_only_until_the_worker_knows(
    on_store: On,
) -> None:
    async with on_store() as bed:
        reads = count_calls(bed, "read_outputs")
        bed.handler("make", lambda n: n)
        bed.handler("use", lambda made: made + 1)
        flow = (
            step("make", order=0, inputs={"n": "${{ input.n }}"}),
            step("use", "make", order=1, inputs={"made": "${{ steps.make.output }}"}),
        )
        worker = bed.worker()
        serving = asyncio.create_task(worker.serve())
        asked = []
        for n in range(3):
            run_id = await bed.start(*flow, given={"n": n})
            await eventually(bed.ended(run_id))
            asked.append(len(reads))
            assert await bed.output(run_id, 1) == n + 1
            del reads[:]
        worker.stop()
        await serving
        assert asked == [1, 0, 0]


async def test_many_claims_are_divided_between_two_lanes_where_two_commits_overlap(on_store: On) -> None:
    async with on_store() as bed:
        go_on = asyncio.Event()

        async def work() -> None:
            await go_on.wait()

        bed.handler("work", work)
        plan = await bed.publish(Definition(name="flow", version=1, steps=(step("work"),)))
        runs = [await bed.start_again(plan) for _ in range(DIVIDED)]
        worker = bed.worker(replace(QUICK, concurrency=4 * DIVIDED), loop="mine")
        serving = asyncio.create_task(worker.serve())
        await until(lambda: worker.held == DIVIDED)
        lanes = Counter(job.lane for job in worker._shared.leases)
        assert max(lanes.values()) == (DIVIDED // 2 if bed.store.divides_batches else DIVIDED)
        go_on.set()
        await asyncio.gather(*(eventually(bed.ended(run)) for run in runs))
        worker.stop()
        await serving


async def test_a_worker_has_its_store_maintained_now_and_then(on_store: On) -> None:
    async with on_store() as bed:
        calls = count_calls(bed, "maintain")

        async def often() -> bool:
            return len(calls) >= 2

        async with asyncio.timeout(30):
            await bed.worker(replace(QUICK, first_maintain_seconds=0.01, maintain_seconds=0.01)).run_until(often)


async def test_no_sweep_waits_for_the_maintenance_of_the_store(on_store: On) -> None:
    async with on_store() as bed:
        swept, begun, never = count_calls(bed, "find_due"), asyncio.Event(), asyncio.Event()

        async def stays(self: object) -> None:
            begun.set()
            await never.wait()

        bed.store.maintain = stays.__get__(bed.store)  # type: ignore[method-assign]

        async def enough() -> bool:
            return begun.is_set() and len(swept) >= 3

        async with asyncio.timeout(30):
            await bed.worker(replace(QUICK, first_maintain_seconds=0.01)).run_until(enough)


async def test_a_worker_does_not_maintain_the_store_at_every_sweep(on_store: On) -> None:
    async with on_store() as bed:
        maintained, swept = count_calls(bed, "maintain"), count_calls(bed, "find_due")

        async def enough() -> bool:
            return len(swept) >= 5

        async with asyncio.timeout(30):
            await bed.worker().run_until(enough)
        assert maintained == []
