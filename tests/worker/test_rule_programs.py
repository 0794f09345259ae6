"""Rules that are expressions, commands and handlers: before a handler, after it, and at the end of a run."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.worker.bed import QUICK, Bed, On, step

from stepkeep.definition.native.build import COMMANDS, rule_capabilities
from stepkeep.kernel.definition import (
    SECOND,
    Command,
    CompensateWhen,
    Effect,
    Handler,
    Retry,
    Rule,
    StepDefinition,
    Undo,
)
from stepkeep.kernel.machine.states import AttemptState, Category, OnFailure, RunState, StepState
from stepkeep.worker.answers import StepError
from stepkeep.worker.attempts.secrets import Secrets
from stepkeep.worker.executors.command import CommandPolicy

PATIENT = Retry(max_attempts=5, initial=0, on=tuple(Category))
"""A policy that would retry every category."""


def ruled(
    name: str, *, pre: tuple[Rule, ...] = (), post: tuple[Rule, ...] = (), order: int = 0, **fields: Any
) -> StepDefinition:
    """A step with rules, and what they ask of a worker."""
    fields.setdefault("capabilities", tuple(sorted(rule_capabilities((*pre, *post)))))
    fields.setdefault("retry", PATIENT)
    return step(name, order=order, rules=post, pre=pre or msgspec.UNSET, **fields)


def command(*argv: str, **fields: Any) -> Rule:
    return Rule(program=Command(argv=argv), **fields)


def handler(name: str, inputs: Any = None, **fields: Any) -> Rule:
    return Rule(program=Handler(name=name), inputs=inputs, **fields)


BROKEN: dict[str, tuple[Rule, str]] = {
    "expression": (Rule(expression="input.n < 3"), "the rule does not hold: input.n < 3 (input.n = 5)"),
    "named": (Rule(expression="input.n < 3", name="small", message="too much"), "small: too much (input.n = 5)"),
    "unevaluable": (Rule(expression="input.m < 3"), "the rule cannot be evaluated: input.m < 3: "),
    "exit status": (command("sh", "-c", "echo oh no >&2; exit 3", name="lint"), "lint: exit status 3: oh no"),
    "printed": (command("echo", "M file.py", silent=True, name="clean"), "clean: it printed: M file.py"),
    "no such program": (command("no-such-program"), "no-such-program: the command 'no-such-program' cannot be started"),
    "false": (handler("says", {"answer": False}), "says: it returned False (answer = false)"),
    "text": (handler("says", {"answer": "no stock"}, message="stock"), "says: stock: no stock (answer = `no stock`)"),
    "none": (handler("says", {"answer": None}), "says: it returned NoneType; a rule returns True, False, or a text"),
    "number": (handler("says", {"answer": 1}), "says: it returned int; a rule returns"),
    "raised": (handler("raises"), "raises: no such account"),
    "raised otherwise": (handler("breaks"), "breaks: ZeroDivisionError: division by zero"),
    "not callable so": (handler("says", {}), "says: handler says needs answer"),
}


def _rules(bed: Bed) -> None:
    async def says(answer: Any) -> Any:
        return answer

    def raises() -> bool:
        raise StepError("no such account", category=Category.TRANSIENT)

    bed.handler("says", says)
    bed.handler("raises", raises)
    bed.handler("breaks", lambda: 1 / 0)


async def test_a_rule_before_the_handler_that_does_not_hold_fails_the_step_for_good_and_the_handler_never_runs(
    on_each: On,
) -> None:
    ran: list[str] = []

    async with on_each() as bed:
        _rules(bed)
        bed.handler("work", lambda: ran.append("work"))
        runs = {
            title: await bed.start(ruled("work", pre=(rule,)), given={"n": 5}, name=f"w-{number}")
            for number, (title, (rule, _)) in enumerate(BROKEN.items())
        }
        assert await bed.finish(*runs.values()) is RunState.FAILED
        for title, run_id in runs.items():
            row = (await bed.steps(run_id))[0]
            assert (row.state, row.category, row.attempts) == (StepState.FAILED, Category.VALIDATION, 1), title
            assert (row.error or "").startswith(f"NOT_RUN: {BROKEN[title][1]}"), (title, row.error)
    assert ran == []


async def test_a_rule_after_the_handler_that_does_not_hold_fails_the_step_for_good(on_each: On) -> None:
    ran: list[str] = []

    async with on_each() as bed:
        _rules(bed)
        bed.handler("work", lambda: ran.append("work"))
        runs = {
            title: await bed.start(ruled("work", post=(rule,)), given={"n": 5}, name=f"w-{number}")
            for number, (title, (rule, _)) in enumerate(BROKEN.items())
        }
        assert await bed.finish(*runs.values()) is RunState.FAILED
        for title, run_id in runs.items():
            row = (await bed.steps(run_id))[0]
            assert (row.state, row.category) == (StepState.FAILED, Category.VALIDATION), title
            assert (row.error or "").startswith(BROKEN[title][1]), (title, row.error)
    assert len(ran) == len(BROKEN)


async def test_rules_that_hold_let_the_step_and_the_run_succeed(on_each: On) -> None:
    seen: list[Any] = []

    async with on_each() as bed:

        async def waits(order: str) -> bool:
            await asyncio.sleep(0)
            seen.append(order)
            return True

        def blocks(ctx: Any, total: int) -> bool:
            seen.append((ctx.step, total, threading.current_thread().name))
            return total == 7

        bed.handler("waits", waits)
        bed.handler("blocks", blocks)
        bed.handler("work", lambda: {"total": 7})
        pre = (Rule(expression="input.order != ''"), handler("waits", "${{ input }}"), command("true"))
        post = (
            Rule(expression="output.total == 7"),
            handler("blocks", "${{ output }}"),
            Rule(program=Command(argv=("test", "${{ output.total }}", "=", "7"))),
        )
        final = (command("true"), handler("waits", {"order": "n${{ steps.work.output.total }}"}))
        run_id = await bed.start(
            ruled("work", pre=pre, post=post),
            given={"order": "o-1"},
            rules=final,
            check_capabilities=tuple(sorted(rule_capabilities(final))),
        )
        assert await bed.finish(run_id) is RunState.SUCCEEDED, await bed.run(run_id)
        [attempt] = [one for one in await bed.attempts(run_id) if one.no == 0]
        assert attempt.state is AttemptState.SUCCEEDED
    assert seen[0] == "o-1"
    assert seen[1][:2] == ("work", 7)
    assert seen[1][2].startswith("stepkeep-rule")
    assert seen[2] == "n7"


async def test_a_final_rule_that_is_a_program_fails_the_run(on_each: On) -> None:
    async with on_each() as bed:
        _rules(bed)
        bed.handler("work", lambda: {"total": 7})
        for number, rule in enumerate((command("false", name="tests"), handler("says", {"answer": "not yet"}))):
            words = tuple(sorted(rule_capabilities((rule,))))
            run_id = await bed.start(
                ruled("work"), name=f"final-{number}", rules=(rule,), check_capabilities=words, given={}
            )
            assert await bed.finish(run_id) is RunState.FAILED
            run = await bed.run(run_id)
            expected = ("tests: exit status 1", "says: not yet (answer = `not yet`)")[number]
            assert (run.category, run.error) == (Category.VALIDATION, expected)


async def test_the_output_schema_of_a_run_is_checked_at_its_end(on_each: On) -> None:
    async with on_each() as bed:
        bed.handler("work", lambda: {"total": "seven"})
        schema = {"properties": {"total": {"type": "integer"}}}
        rule = Rule(name="output_schema", schema=schema)
        declared = await bed.start(
            ruled("work"), name="declared", rules=(rule,), output={"total": "${{ steps.work.output.total }}"}
        )
        last = await bed.start(ruled("work"), name="last", rules=(rule,))
        fits = await bed.start(
            ruled("work"), name="fits", rules=(rule,), output={"total": "${{ size(steps.work.output.total) }}"}
        )
        assert await bed.finish(declared, last, fits) is RunState.FAILED
        for run_id in (declared, last):
            run = await bed.run(run_id)
            assert run.category is Category.VALIDATION
            assert (run.error or "").startswith("output_schema: the output of the run does not fit its schema: total:")
            assert "seven" not in (run.error or "")
        assert (await bed.run(fits)).state is RunState.SUCCEEDED


async def test_a_step_whose_rules_kept_its_handler_from_running_is_not_undone(on_each: On) -> None:
    undone: list[str] = []

    async with on_each() as bed:
        bed.handler("work", lambda: None)
        bed.handler("undo", lambda ctx: undone.append(ctx.step))
        hook = Undo(executor=Handler(name="undo"), inputs=None)
        counts = {"undo": hook, "effect": Effect.WRITE, "on_failure": OnFailure.COMPENSATE}
        before = ruled("before", uses="work", **counts)
        never = ruled(
            "never",
            uses="work",
            order=1,
            pre=(Rule(expression="1 == 2"),),
            compensate_when=CompensateWhen.ATTEMPTED,
            **counts,
        )
        run_id = await bed.start(before, msgspec.structs.replace(never, depends_on=step("x", "before").depends_on))
        assert await bed.finish(run_id) is RunState.ROLLED_BACK
    assert undone == ["before"]


async def test_a_program_that_outlives_its_own_timeout_fails_its_rule(on_store: On) -> None:
    async with on_store() as bed:
        bed.handler("work", lambda: None)
        rule = command("sleep", "60", timeout=SECOND // 10)
        run_id = await bed.start(ruled("work", pre=(rule,)))
        assert await bed.finish(run_id) is RunState.FAILED
        assert (await bed.run(run_id)).error == "NOT_RUN: sleep: it ran past its timeout of 100ms"


async def test_rules_before_the_handler_share_its_timeout_and_are_not_retried(on_store: On) -> None:
    async with on_store() as bed:
        bed.handler("work", lambda: None)
        run_id = await bed.start(ruled("work", pre=(command("sleep", "60"),), timeout=SECOND // 5))
        assert await bed.finish(run_id) is RunState.FAILED
        row = (await bed.steps(run_id))[0]
        assert (row.attempts, row.category) == (1, Category.VALIDATION)
        assert row.error == "NOT_RUN: the attempt ran past its timeout of 0.2 s"


async def test_a_command_of_a_rule_gets_its_inputs_environment_and_directory_and_no_shell(
    on_store: On, tmp_path: Path
) -> None:
    async with on_store() as bed:
        bed.handler("work", lambda: None)
        script = 'test "$WORD" = "a;b" && test "$(pwd)" = "$PLACE" && grep -q "order" && test "$STEPKEEP_STEP" = work'
        program = Command(
            argv=("sh", "-c", script), env={"WORD": "${{ input.word }}", "PLACE": str(tmp_path)}, cwd=str(tmp_path)
        )
        pre = (Rule(program=program, inputs={"order": "${{ input }}"}),)
        run_id = await bed.start(ruled("work", pre=pre), given={"word": "a;b"})
        assert await bed.finish(run_id) is RunState.SUCCEEDED, await bed.run(run_id)


async def test_secrets_do_not_reach_the_error_of_a_rule(on_each: On, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPKEEP_SECRET_TOKEN", "s3cr3t-value")

    async with on_each() as bed:
        bed.handler("says", lambda token: f"bad token {token}")
        bed.handler("work", lambda: None)
        run_id = await bed.start(ruled("work", pre=(handler("says", {"token": "${{ secret.TOKEN }}"}),)))
        settings = msgspec.structs.replace(QUICK, secrets=Secrets())
        assert await bed.finish(run_id, settings=settings) is RunState.FAILED
        error = (await bed.run(run_id)).error or ""
        assert "bad token" in error
        assert "s3cr3t" not in error
        hidden = await bed.start(
            ruled("work", pre=(Rule(expression="input.password == 'x'"),)), given={"password": "hunter22"}, name="p"
        )
        assert await bed.finish(hidden, settings=settings) is RunState.FAILED
        assert (await bed.run(hidden)).error == (
            "NOT_RUN: the rule does not hold: input.password == 'x' (input.password = `***`)"
        )


async def test_only_workers_that_have_what_the_rules_need_claim_the_step(on_each: On) -> None:
    async with on_each() as bed:
        bed.handler("work", lambda: None)
        by_handler = await bed.start(ruled("work", pre=(handler("later"),)), name="handlers")
        by_command = await bed.start(ruled("work", post=(command("true"),)), name="commands")
        closed = msgspec.structs.replace(QUICK, commands=CommandPolicy(enabled=False))
        other = await bed.start(step("work"), name="other")
        assert await bed.finish(other, settings=closed) is RunState.SUCCEEDED
        assert (await bed.steps(by_handler))[0].state is StepState.READY
        assert (await bed.steps(by_command))[0].state is StepState.READY
        bed.handler("later", lambda: True)
        assert await bed.finish(by_handler, by_command) is RunState.SUCCEEDED
        assert COMMANDS in rule_capabilities((command("true"),))


async def test_a_rule_before_a_transactional_step_is_evaluated_before_its_transaction(on_each: On) -> None:
    async with on_each() as bed:
        bed.handler("write", lambda: 1, transactional=True)
        good = await bed.start(
            ruled("write", transactional=True, pre=(Rule(expression="input.n == 1"),)), given={"n": 1}, name="good"
        )
        bad = await bed.start(
            ruled("write", transactional=True, pre=(Rule(expression="input.n == 1"),)), given={"n": 2}, name="bad"
        )
        assert await bed.finish(good, bad) is RunState.SUCCEEDED
        assert (await bed.steps(bad))[0].error == "NOT_RUN: the rule does not hold: input.n == 1 (input.n = 2)"


async def test_many_values_and_long_values_are_cut(on_store: On) -> None:
    async with on_store() as bed:
        bed.handler("work", lambda: None)
        names = "abcdefg"
        check = " && ".join(f"input.{name} == 'x'" for name in names)
        run_id = await bed.start(
            ruled("work", pre=(Rule(expression=check),)), given={name: name * 5000 for name in names}
        )
        assert await bed.finish(run_id) is RunState.FAILED
        error = (await bed.run(run_id)).error or ""
        assert error.endswith(", …)")
        assert len(error) < 1000
