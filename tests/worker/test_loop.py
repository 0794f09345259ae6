"""The worker on a real store: claims, reports, chains, retries, waits, rules, undo (design, sections 3 and 6)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.worker.bed import Bed, On, step

from stepkeep.kernel.definition import Command, Handler, Retry, Rule, Undo
from stepkeep.kernel.events import MessageArrived
from stepkeep.kernel.states import AttemptState, Category, OnFailure, RunState, StepState
from stepkeep.worker.answers import fail, retry_in, wait_for


def test_a_chain_of_steps_passes_its_outputs_on(on_store: On) -> None:
    async def body(bed: Bed) -> None:
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

    on_store(body)


def test_many_runs_of_a_wide_workflow_finish(on_store: On) -> None:
    async def body(bed: Bed) -> None:
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

    on_store(body)


def test_a_failing_step_is_retried_until_it_succeeds(on_store: On) -> None:
    async def body(bed: Bed) -> None:
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

    on_store(body)


@pytest.mark.parametrize("said", [lambda: fail("no"), lambda: {"x": float("nan")}])
def test_what_can_never_work_is_not_tried_again(on_store: On, said: Callable[[], object]) -> None:
    async def body(bed: Bed) -> None:
        bed.handler("hopeless", lambda: said())
        run_id = await bed.start(step("hopeless"))
        assert await bed.finish(run_id) is RunState.FAILED
        assert [attempt.category for attempt in await bed.attempts(run_id)] == [Category.VALIDATION]

    on_store(body)


def test_a_template_that_cannot_be_rendered_fails_the_step_for_good(on_store: On) -> None:
    async def body(bed: Bed) -> None:
        bed.handler("mail", lambda to: to)
        run_id = await bed.start(step("mail", inputs={"to": "${{ input.email.address }}"}), given={"email": None})
        assert await bed.finish(run_id) is RunState.FAILED
        [attempt] = await bed.attempts(run_id)
        assert attempt.category is Category.VALIDATION
        assert "input" in (attempt.error or "")

    on_store(body)


def test_a_handler_asks_for_its_own_pause(on_store: On) -> None:
    async def body(bed: Bed) -> None:
        seen = []

        def patient():
            seen.append(1)
            return retry_in("1h", "later") if len(seen) == 1 else "done"

        bed.handler("patient", patient)
        run_id = await bed.start(step("patient"))
        await bed.worker().run_until(bed.step_is(run_id, 0, StepState.RETRYING))
        bed.store.clock_offset += 3_600_000_000
        assert await bed.finish(run_id) is RunState.SUCCEEDED

    on_store(body)


def test_a_step_that_waits_is_woken_by_its_message_and_told_which(on_store: On) -> None:
    async def body(bed: Bed) -> None:
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

    on_store(body)


def test_a_wait_that_nobody_answers_comes_back_as_a_timeout(on_store: On) -> None:
    async def body(bed: Bed) -> None:
        bed.handler("pay", lambda ctx: ctx.woken_by.timed_out if ctx.woken_by else wait_for("paid", timeout="1d"))
        run_id = await bed.start(step("pay"))
        await bed.worker().run_until(bed.step_is(run_id, 0, StepState.AWAITING_EVENT))
        bed.store.clock_offset += 90_000_000_000
        assert await bed.finish(run_id) is RunState.SUCCEEDED
        assert await bed.output(run_id, 0) is True

    on_store(body)


def test_rules_judge_a_result_before_it_counts(on_store: On) -> None:
    async def body(bed: Bed) -> None:
        bed.handler("count", lambda n: {"rows": n})
        rules = (Rule(expression="output.rows > 0", message="nothing was counted"),)
        good = await bed.start(step("count", inputs="${{ input }}", rules=rules), given={"n": 3})
        plan = bed.transactor.plans.get((await bed.run(good)).definition_id)
        bad = await bed.start_again(plan, {"n": 0})
        assert await bed.finish(good, bad) is RunState.SUCCEEDED
        failed = await bed.run(bad)
        assert (failed.state, failed.error) == (RunState.FAILED, "nothing was counted")

    on_store(body)


def test_rules_may_look_at_other_steps_and_run_level_rules_at_all_of_them(on_store: On) -> None:
    async def body(bed: Bed) -> None:
        bed.handler("a", lambda: 1)
        bed.handler("b", lambda: 2)
        run_id = await bed.start(
            step("a", order=0),
            step("b", "a", order=1, rules=(Rule(expression="output > steps.a.output"),)),
            rules=(Rule(expression="steps.a.state == 'succeeded' && steps.b.output == 2"),),
        )
        assert await bed.finish(run_id) is RunState.SUCCEEDED

    on_store(body)


def test_a_rule_that_cannot_be_evaluated_fails_the_step_with_its_words(on_store: On) -> None:
    async def body(bed: Bed) -> None:
        bed.handler("a", lambda: {"x": 1})
        run_id = await bed.start(step("a", rules=(Rule(expression="output.y > 1"),)))
        assert await bed.finish(run_id) is RunState.FAILED
        assert "cannot be evaluated" in ((await bed.run(run_id)).error or "")

    on_store(body)


def test_undo_hooks_run_in_reverse_with_what_their_steps_returned(on_store: On) -> None:
    async def body(bed: Bed) -> None:
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

    on_store(body)


def test_a_command_step_runs_end_to_end_with_its_arguments_filled_in(on_store: On) -> None:
    async def body(bed: Bed) -> None:
        command = Command(argv=("echo", "-n", "${{ input.n }}", "is ${{ input.word }}"), env={"N": "${{ input.n }}"})
        run_id = await bed.start(step("say", executor=command), given={"n": 7, "word": "odd; rm -rf"})
        assert await bed.finish(run_id) is RunState.SUCCEEDED
        assert (await bed.output(run_id, 0))["stdout"] == "7 is odd; rm -rf"

    on_store(body)


def test_steps_of_other_workers_are_left_alone(on_store: On) -> None:
    async def body(bed: Bed) -> None:
        bed.handler("mine", lambda: 1)
        run_id = await bed.start(
            step("mine", order=0), step("theirs", order=0), step("gpu", order=0, uses="mine", capabilities=("gpu",))
        )
        await bed.worker().run_until(bed.step_is(run_id, 1, StepState.SUCCEEDED))
        states = await bed.states(run_id)
        assert sorted(states) == ["ready", "ready", "succeeded"]
        bed.handler("theirs", lambda: 2)
        assert await bed.finish(run_id, capabilities=["gpu"]) is RunState.SUCCEEDED

    on_store(body)


def test_a_worker_registers_works_and_leaves_a_journal_behind(on_store: On) -> None:
    async def body(bed: Bed) -> None:
        bed.handler("a", lambda: 1)
        run_id = await bed.start(step("a"))
        worker = bed.worker(app="billing")
        await worker.run_until(bed.ended(run_id))
        [row] = await bed.store.list_workers("default")
        assert row.id == worker.id
        assert row.id.startswith("billing:")
        assert row.state == "shutdown"

    on_store(body)
