"""The workbench runs workflows as production would, without waiting, and tells clearly when they go another way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.definition.python.registry import HandlerSpec
from stepkeep.testing import LOSES_WORKER, TIMES_OUT, Workbench

EXAMPLES = Path(__file__).parents[2] / "examples"

ORDER = """
workflow: order
timeout: 3d
on_failure: compensate
input: [item]
steps:
  - name: reserve
    uses: stock.reserve
    with: { item: "${{ input.item }}" }
    timeout: 10s
    undo: { uses: stock.release, timeout: 5s }
  - name: sign-off
    approval: { deadline: 24h }
  - name: ship
    uses: courier.book
    with: { reservation: "${{ steps.reserve.output.id }}" }
    timeout: 20s
"""


@pytest.fixture(params=["own file", "url"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workbench]:
    """A workbench on a file of its own, whose clock stands still, and one on a named database, whose clock runs."""
    url = None if request.param == "own file" else f"sqlite:///{tmp_path / 'bench.db'}"
    with Workbench(url, handlers=sk.Registry()) as bench:
        yield bench


@pytest.fixture
def order(bench: Workbench) -> Any:
    bench.replace("stock.reserve", returns={"id": 7})
    bench.replace("stock.release")
    bench.replace("courier.book", returns="booked")
    return bench.load(ORDER)


# -- paths -----------------------------------------------------------------------------------------------------------
def test_a_run_goes_until_only_people_can_move_it_and_on_from_there(bench: Workbench, order: Any) -> None:
    run = bench.run(order, {"item": "lamp"})
    run.assert_state("blocked")
    run.assert_waits("sign-off")
    run.approve("sign-off", by="bea", comment="fine")
    run.assert_succeeded("booked")
    run.assert_path("reserve", "sign-off", "ship")
    run.assert_undone([])
    assert run.step("sign-off")["record"]["by"] == "bea"


def test_replacements_are_given_what_the_handler_would_be_given(bench: Workbench, order: Any) -> None:
    run = bench.run(order, {"item": "lamp"})
    run.approve()
    (reserved,) = bench.calls("stock.reserve")
    assert (reserved.step, reserved.attempt, reserved.inputs) == ("reserve", 1, {"item": "lamp"})
    assert bench.calls("courier.book")[0].inputs == {"reservation": 7}


def test_a_rejection_rolls_back(bench: Workbench, order: Any) -> None:
    run = bench.run(order, {"item": "lamp"})
    run.reject(comment="too dear")
    run.assert_state("rolled_back")
    run.assert_undone(["reserve"])
    run.assert_step("sign-off", "failed", category="governance")
    assert bench.calls("stock.release")[0].undoing


def test_a_cancel_with_undo_rolls_back_and_one_without_does_not(bench: Workbench, order: Any) -> None:
    first, second = bench.run(order, {"item": "a"}), bench.run(order, {"item": "b"})
    first.cancel(compensate=True)
    second.cancel()
    first.assert_undone(["reserve"])
    second.assert_state("cancelled")
    second.assert_undone([])


# -- failures --------------------------------------------------------------------------------------------------------
def test_a_handler_fails_a_few_times_and_then_succeeds(bench: Workbench, order: Any) -> None:
    bench.replace("stock.reserve", fails_times=2, raises=ConnectionError("down"), returns={"id": 7})
    before = bench.now
    run = bench.run(order, {"item": "lamp"})
    run.assert_attempts("reserve", 3)
    run.assert_waits("sign-off")
    assert bench.now - before >= timedelta(seconds=1.5), "1 s and 2 s, less jitter"
    assert run.step("reserve")["history"][0]["error"] == "ConnectionError: down"


def test_each_run_counts_its_own_failures(bench: Workbench, order: Any) -> None:
    bench.replace("stock.reserve", fails_times=1, returns={"id": 7})
    for _ in range(2):
        bench.run(order, {"item": "lamp"}).assert_attempts("reserve", 2)


def test_a_handler_that_always_fails_uses_up_its_attempts(bench: Workbench, order: Any) -> None:
    bench.replace("courier.book", raises="no courier today")
    run = bench.run(order, {"item": "lamp"})
    run.approve()
    run.assert_state("rolled_back")
    run.assert_attempts("ship", 3)


def test_a_final_failure_is_not_retried(bench: Workbench, order: Any) -> None:
    bench.replace("courier.book", raises=sk.fail("no such address"))
    run = bench.run(order, {"item": "lamp"})
    run.approve()
    run.assert_attempts("ship", 1)
    run.assert_step("ship", "failed", category="validation")


def test_attempts_time_out(bench: Workbench, order: Any) -> None:
    bench.replace("courier.book", times_out=True)
    run = bench.run(order, {"item": "lamp"})
    before = bench.now
    run.approve()
    run.assert_step("ship", "failed", category="timeout")
    assert [attempt["state"] for attempt in run.step("ship")["history"]] == ["timed_out"] * 3
    assert bench.now - before >= timedelta(seconds=3 * 20 + 1.5)


def test_workers_are_lost_and_another_takes_over(bench: Workbench, order: Any) -> None:
    bench.replace("stock.reserve", loses_worker=1, returns={"id": 7})
    run = bench.run(order, {"item": "lamp"})
    run.assert_waits("sign-off")
    assert [attempt["state"] for attempt in run.step("reserve")["history"]] == ["lost", "succeeded"]


def test_a_script_says_what_each_attempt_comes_to(bench: Workbench, order: Any) -> None:
    bench.replace("stock.reserve", script=[TIMES_OUT, LOSES_WORKER], returns={"id": 1})
    run = bench.run(order, {"item": "lamp"})
    assert [attempt["state"] for attempt in run.step("reserve")["history"]] == ["timed_out", "lost", "succeeded"]


def test_a_hook_that_fails_leaves_the_rollback_partial(bench: Workbench, order: Any) -> None:
    bench.replace("stock.release", raises=sk.fail("it is gone"))
    run = bench.run(order, {"item": "lamp"})
    run.reject()
    run.assert_state("failed")
    run.assert_undone([])
    assert run.view["run"]["rollback"] == "partial"


def test_an_attempt_takes_time_and_too_much_of_it_is_a_timeout(bench: Workbench, order: Any) -> None:
    before = bench.now
    bench.replace("stock.reserve", takes="9s", returns={"id": 7})
    bench.run(order, {"item": "lamp"}).assert_waits("sign-off")
    assert bench.now - before >= timedelta(seconds=9)
    bench.replace("stock.reserve", takes="11s", returns={"id": 7})
    bench.run(order, {"item": "lamp"}).assert_step("reserve", "failed", category="timeout")


# -- the clock -------------------------------------------------------------------------------------------------------
def test_a_deadline_passes_when_the_clock_is_moved_past_it(bench: Workbench, order: Any) -> None:
    run = bench.run(order, {"item": "lamp"})
    bench.advance("23h")
    run.assert_waits("sign-off")
    bench.advance(timedelta(hours=1))
    run.assert_state("rolled_back")
    assert "no decision came before the deadline" in str(run.step("sign-off")["error"])


def test_what_falls_due_on_the_way_happens_at_its_time(bench: Workbench) -> None:
    bench.replace("a.x", waits_for="never", wait_timeout="1h", returns="gave up")
    text = """
workflow: w
timeout: 30d
steps:
  - {name: a, uses: a.x}
  - {name: b, wait: {event: never, deadline: 2h}, on_failure: skip}
  - {name: c, approval: {deadline: 3h}}
"""
    run = bench.run(bench.load(text))
    run.assert_waits("a")
    bench.advance("10d")
    run.assert_state("failed")
    began = run.view["run"]["started_at"]
    hours = [_hours(began, run.step(name)["ended_at"]) for name in ("a", "b", "c")]
    assert hours == [1, 1 + 2, 1 + 2 + 3]


def _hours(start: str, end: str) -> int:
    from datetime import datetime

    return round((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds() / 3600)


def test_the_run_times_out(bench: Workbench, order: Any) -> None:
    slow = bench.load(ORDER.replace("deadline: 24h", "deadline: 20d"))
    run = bench.run(slow, {"item": "lamp"})
    bench.advance("3d")
    run.assert_state("rolled_back")
    assert run.error == "the run did not end within its timeout"


def test_time_does_not_go_back(bench: Workbench) -> None:
    with pytest.raises(sk.InvalidInput, match="go back"):
        bench.advance(timedelta(seconds=-1))
    with pytest.raises(sk.InvalidInput, match="advance"):
        bench.advance("soon")


# -- people and messages ---------------------------------------------------------------------------------------------
def test_a_manual_step_is_completed_without_anybody_carrying_the_token(bench: Workbench) -> None:
    bench.replace("a.x", returns={"asked": True})
    text = "{workflow: w, timeout: 9d, steps: [{name: hand, uses: a.x, completion: {mode: manual, deadline: 1d}}]}"
    definition = bench.load(text)
    run = bench.run(definition)
    run.assert_waits("hand")
    run.complete("hand", output={"done": True}, by="bea")
    run.assert_succeeded({"done": True})
    other = bench.run(definition)
    other.complete("hand", "Failed", notes="no way")
    other.assert_state("failed")


def test_a_message_ends_a_wait_of_a_step_and_of_a_handler(bench: Workbench) -> None:
    def pay(ctx: sk.Context) -> Any:
        return {"paid": ctx.woken_by.payload} if ctx.woken_by else sk.wait_for("paid", timeout="1d")

    bench.replace("a.pay", pay)
    text = (
        "{workflow: w, timeout: 9d, steps: [{name: pay, uses: a.pay}, {name: wait, wait: {event: go, deadline: 1h}}]}"
    )
    run = bench.run(bench.load(text))
    run.assert_waits("pay")
    run.send("paid", 12)
    run.assert_waits("wait")
    assert run.step("pay")["output"] == {"paid": 12}
    run.send("go", {"now": True})
    run.assert_succeeded({"now": True})
    run.assert_attempts("pay", 1)


# -- what can be run -------------------------------------------------------------------------------------------------
def test_python_workflows_run_with_their_own_handlers(bench: Workbench) -> None:
    registry = sk.Registry()

    @sk.step("double", registry=registry)
    async def double(ctx: sk.Context, number: int) -> int:
        return 2 * number

    @sk.step("add", registry=registry)
    def add(ctx: sk.Context, number: int) -> int:
        return number + int(ctx.outputs["first"])

    flow = sk.Workflow("sums", timeout="1h", registry=registry)
    first = flow.step("first", double)
    flow.step("second", add, after=first)
    bench.run(flow, {"number": 4}).assert_succeeded(12)
    bench.replace("double", returns=1)
    bench.run(flow, {"number": 4}).assert_succeeded(5)


PRE = """
workflow: first
steps: [{name: a, uses: a.x, pre: [{check: "input.n > 0", message: nothing to do}, {uses: a.ready}], on_failure: skip}]
"""


def test_rules_before_a_handler_are_judged_and_the_handler_is_not_called() -> None:
    registry = sk.Registry()
    registry.register(HandlerSpec(name="a.ready", function=lambda n: n < 10))
    with Workbench(handlers=registry) as bench:
        bench.replace("a.x", returns=1)
        flow = bench.load(PRE)
        bench.run(flow, {"n": 1}).assert_succeeded(1)
        for n, why in ((0, "nothing to do (input.n = 0)"), (12, "a.ready: it returned False (n = 12)")):
            run = bench.run(flow, {"n": n})
            run.assert_step("a", "skipped", category="validation")
            assert run.step("a")["error"] == f"NOT_RUN: {why}"
        assert len(bench.calls("a.x")) == 1


def test_a_handler_of_a_rule_is_not_replaced() -> None:
    registry = sk.Registry()
    with Workbench(handlers=registry) as bench:
        bench.replace("a.x", returns=1)
        bench.replace("a.ready", returns=True)
        flow = bench.load(PRE)
        # A misspelt name is what the workbench would complain of at its end.
        registry.register(HandlerSpec(name="a.ready", function=lambda n: True))
        with pytest.raises(AssertionError, match="and rules are evaluated for real"):
            bench.run(flow, {"n": 1})


def test_a_command_of_a_rule_is_not_really_run_unless_asked(tmp_path: Path) -> None:
    text = "workflow: w\nsteps: [{name: a, uses: a.x, post: [{command: [touch, x]}]}]"
    with Workbench(handlers=sk.Registry()) as bench:
        bench.replace("a.x", returns=1)
        with pytest.raises(AssertionError, match="a rule of step a runs touch"):
            bench.run(bench.load(text))
    with Workbench(handlers=sk.Registry(), outside=True) as bench:
        bench.replace("a.x", returns=1)
        made = tmp_path / "made"
        bench.run(bench.load(text.replace("x]", f"{made}]"))).assert_succeeded(1)
        assert made.exists()


def test_rules_are_judged(bench: Workbench) -> None:
    text = """
workflow: ruled
timeout: 1h
steps: [{name: a, uses: a.x, rules: [{check: "${{ output.ok }}", message: not ok}]}]
rules: [{check: "${{ steps.a.output.fine }}", message: not fine}]
"""
    for says, state, error in (
        ({"ok": True, "fine": True}, "succeeded", None),
        ({"ok": False, "fine": True}, "failed", "not ok"),
        ({"ok": True, "fine": False}, "failed", "not fine"),
    ):
        bench.replace("a.x", returns=says)
        run = bench.run(bench.load(text))
        run.assert_state(state)
        assert error is None or error in str(run.error)


def test_branches_run_side_by_side_and_join(bench: Workbench) -> None:
    bench.replace_others(returns={})
    text = """
workflow: diamond
timeout: 1h
steps:
  - {name: top, uses: a.x, depends_on: []}
  - {name: left, uses: a.x, depends_on: [top]}
  - {name: right, uses: a.x, depends_on: [top]}
  - {name: bottom, uses: a.x, depends_on: [left, right]}
"""
    bench.run(bench.load(text)).assert_path("top", "left", "right", "bottom")


DIALECTS = {
    "action": {},
    "ioa": {"email": "ada@example.com"},
    "linear": {},
    "run": {},
    "workstream": {},
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_runs_without_a_handler_at_hand(bench: Workbench, dialect: str) -> None:
    bench.replace_others(returns={"ok": True})
    run = bench.run(EXAMPLES / f"{dialect}.yaml", DIALECTS[dialect], as_=dialect)
    assert run.path
    assert run.show(dialect)


def test_a_yaml_file_runs_with_what_its_handlers_decorators_say(bench: Workbench) -> None:
    registry = sk.Registry()

    @sk.step("accounts.create", retry=sk.Retry(max_attempts=1), registry=registry)
    def create(email: str) -> dict[str, str]: ...  # type: ignore[empty-body]

    with Workbench(handlers=registry) as other:
        other.replace("accounts.create", fails_times=1)
        text = "{workflow: w, timeout: 1h, steps: [{name: a, uses: accounts.create}]}"
        other.run(other.load(text), {"email": "x"}).assert_attempts("a", 1)
        missing = other.run(other.load(text))
        missing.assert_step("a", "failed", category="validation")
        assert "needs email" in str(missing.error), "inputs are held to the real handler's parameters"


def test_a_step_of_any_kind_is_replaced_by_its_own_name(bench: Workbench) -> None:
    for name, count in (
        ("count-orders", {"json": {"orders": 3}}),
        ("count-visits", {}),
        ("write-report", {"stdout": "r"}),
    ):
        bench.replace(step=name, returns=count)
    run = bench.run(EXAMPLES / "nightly_report.yaml", {"day": "monday"})
    run.assert_succeeded("r")
    assert bench.calls("write-report")[0].inputs == {"day": "monday", "orders": 3}


def test_a_step_is_replaced_whose_handler_nobody_has(bench: Workbench) -> None:
    bench.replace_others(returns="other")
    bench.replace(step="b", returns="own")
    text = "{workflow: w, timeout: 1h, steps: [{name: a, uses: a.x}, {name: b, uses: a.x}]}"
    run = bench.run(bench.load(text))
    run.assert_succeeded("own")
    assert run.step("a")["output"] == "other"


def test_nothing_outside_is_touched_unless_it_is_wished(bench: Workbench) -> None:
    with pytest.raises(AssertionError, match=r"bench\.replace\(step='count-orders'"):
        bench.run(EXAMPLES / "nightly_report.yaml", {"day": "monday"})
    with Workbench(outside=True) as real:
        real.run(EXAMPLES / "nightly_report.yaml", {"day": "monday"}).assert_state("succeeded")


def test_a_handler_that_nobody_has_is_named(bench: Workbench) -> None:
    with pytest.raises(sk.DefinitionError, match=r"nobody\.knows"):
        bench.load("{workflow: w, timeout: 1h, steps: [{name: a, uses: nobody.knows}]}")
    definition = bench.call(_native("{workflow: w, timeout: 1h, steps: [{name: a, uses: nobody.knows}]}"))
    with pytest.raises(AssertionError, match=r"the handler nobody\.knows, which is not registered"):
        bench.run(definition)


async def _native(text: str) -> Any:
    from stepkeep.definition.native.reader import load_text

    return load_text(text, "w.yaml")


def test_a_transactional_step_writes_in_the_same_transaction(tmp_path: Path) -> None:
    registry = sk.Registry()

    @sk.step("notes.add", transactional=True, registry=registry)
    def add(ctx: sk.Context) -> int:
        ctx.connection.execute("create table if not exists notes (text)")
        ctx.connection.execute("insert into notes values ('one')")
        return 1

    flow = sk.Workflow("noted", timeout="1h", registry=registry)
    flow.step("note", add, transactional=True)
    with Workbench(f"sqlite:///{tmp_path / 'bench.db'}", handlers=registry) as bench:
        bench.run(flow).assert_succeeded(1)


# -- messages of failed assertions -----------------------------------------------------------------------------------
def test_a_failed_assertion_tells_what_was_expected_what_happened_and_the_story(bench: Workbench, order: Any) -> None:
    bench.replace("courier.book", raises=sk.fail("no such address"))
    run = bench.run(order, {"item": "lamp"})
    run.approve()
    with pytest.raises(AssertionError) as told:
        run.assert_path("reserve", "ship")
    said = str(told.value)
    assert "expected  reserve → ship" in said
    assert "found     reserve → sign-off → ship" in said
    assert "at 2: expected ship, found sign-off" in said
    assert "What happened" in said
    assert "validation: no such address" in said
    for check, message in (
        (lambda: run.assert_state("succeeded"), "the run should be succeeded, and is rolled_back (no such address)"),
        (lambda: run.assert_undone([]), "expected  nothing"),
        (lambda: run.assert_attempts("ship", 3), "step ship should have been attempted 3 times, and was once: failed"),
        (lambda: run.assert_step("ship", "skipped"), "step ship should be skipped, and is failed (no such address)"),
        (lambda: run.assert_waits("sign-off"), "found     nothing"),
        (lambda: run.assert_step("ship", "failed", category="auth"), "for auth, and did for validation"),
    ):
        with pytest.raises(AssertionError) as told:
            check()
        assert message in str(told.value)


async def settled(bench: Workbench) -> None:
    bench.settle()


def test_mistakes_in_a_test_are_told_as_such(bench: Workbench, order: Any) -> None:
    run = bench.run(order, {"item": "lamp"})
    with pytest.raises(sk.InvalidInput, match="has no step shipp; it has reserve, sign-off, ship"):
        run.step("shipp")
    with pytest.raises(sk.InvalidInput, match="not asked to be completed"):
        run.complete("ship")
    with pytest.raises(sk.InvalidInput, match=r"mail\.send is not replaced"):
        bench.calls("mail.send")
    with pytest.raises(sk.InvalidInput, match="say what to replace"):
        bench.replace()
    with pytest.raises(sk.InvalidInput, match="not open"):
        Workbench().advance("1h")
    with pytest.raises(sk.InvalidInput, match="outside of `async def`"):
        asyncio.run(settled(bench))


def test_the_judge_has_nothing_to_say_against_runs_on_a_workbench(bench: Workbench, order: Any) -> None:
    bench.replace("stock.reserve", script=[TIMES_OUT, LOSES_WORKER], returns={"id": 1})
    run = bench.run(order, {"item": "lamp"})
    run.reject()
    assert bench.call(bench.engine.certify(run.id)).ok


def test_a_replacement_that_nothing_in_the_test_is_named_by_is_a_mistake() -> None:
    flow = "{workflow: w, timeout: 1h, steps: [{name: a, uses: ledger.book, timeout: 1m}]}"

    def test() -> None:
        with Workbench() as bench:
            bench.replace("ledger.bok")
            bench.replace("ledger.book")
            bench.run(bench.load(flow)).assert_state("succeeded")

    with pytest.raises(sk.InvalidInput, match=r"ledger\.bok was replaced.* Did you mean ledger\.book\?"):
        test()


def test_steps_find_the_secrets_of_the_test_and_stand_ins_for_all_others() -> None:
    seen: list[str] = []
    registry = sk.Registry()
    sk.step("secret.use", registry=registry)(lambda known, unknown: seen.extend([known, unknown]))
    flow = sk.Workflow("secrets", timeout="1h", registry=registry)
    flow.step("use", "secret.use", inputs={"known": sk.secret("KNOWN"), "unknown": sk.secret("UNKNOWN")})
    with Workbench(handlers=registry, secrets={"KNOWN": "value-1"}) as bench:
        bench.run(flow).assert_succeeded()
    assert seen == ["value-1", "UNKNOWN-for-tests"]


def test_a_handler_may_say_how_far_it_is(bench: Workbench) -> None:
    def tell(ctx: sk.Context) -> str:
        ctx.progress(0.4, "page 12")
        assert ctx.last_progress is not None
        return ctx.last_progress.text

    bench.registry.register(HandlerSpec(name="far.tell", function=tell))
    run = bench.run(bench.load("workflow: far\ntimeout: 1h\nsteps: [{name: a, uses: far.tell, timeout: 1m}]\n"))
    run.assert_succeeded("page 12")
    assert run.step("a")["progress"] is None


def test_a_flow_runs_with_replaced_calls_and_the_time_that_it_sleeps() -> None:
    @sk.step("bench.double")
    def double(n: int) -> int:
        return 2 * n

    @sk.step("flows.send")
    def send(n: int) -> None:
        raise AssertionError("it is replaced")

    @sk.flow
    async def order(ctx: sk.FlowContext, n: int) -> list[Any]:
        doubled = await ctx.step(double, n)
        await ctx.sleep("2d")
        return [doubled, await ctx.options(timeout="5s").step(send, doubled)]

    with Workbench() as workbench:
        workbench.replace("flows.send", returns="sent", fails_times=1)
        run = workbench.run(order, {"n": 3})
        workbench.advance("2d")
        run.assert_succeeded([6, "sent"])


def test_a_flow_that_differs_from_replay_to_replay_is_found(workbench: Workbench) -> None:
    numbers = iter(range(100))

    @sk.step("bench.double", registry=workbench.registry)
    def double(n: int) -> int:
        return 2 * n

    @sk.flow("bench.fickle", registry=workbench.registry)
    async def fickle(ctx: sk.FlowContext) -> int:
        return await ctx.step(double, next(numbers))

    run = workbench.run(fickle, {})
    run.assert_state("blocked")
    assert "is not deterministic: its call 0 is step bench.double" in (run.step("bench.fickle")["error"] or "")
