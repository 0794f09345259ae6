"""What a handler is given is its own: whatever it does to it, no other attempt, step or run sees a change."""

from __future__ import annotations

from typing import Any

import pytest
from tests.worker.bed import On, step

from stepkeep.kernel.compiler import Compiler
from stepkeep.kernel.definition import Agent, Command, Definition, Effect, Executor, Handler, Http, Retry, Undo
from stepkeep.kernel.machine.states import RunState
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.plan import build_plan
from stepkeep.operations.definitions.publish import publish
from stepkeep.worker.answers import fail
from stepkeep.worker.attempts.templates import compiled
from stepkeep.worker.context import Context

CONSTANT = {"cfg": {"n": 1}, "tags": []}
MIXED = {"cfg": {"n": 1}, "tags": [], "who": "${{ input.who }}"}


def change(cfg: dict[str, Any], tags: list[str], who: Any = None) -> dict[str, Any]:
    cfg["n"] += 1
    tags.append("x")
    if isinstance(who, list):
        who.append("changed")
    return {"cfg": cfg, "tags": tags, "who": who}


@pytest.mark.parametrize("inputs", [CONSTANT, MIXED], ids=["constant", "mixed"])
async def test_three_runs_of_one_worker_start_from_the_same_inputs(on_store: On, inputs: dict[str, Any]) -> None:
    async with on_store() as bed:
        bed.handler("change", change)
        given = {"who": ["me"]}
        steps = (step("a", uses="change", inputs=inputs), step("b", "a", order=1, uses="change", inputs=inputs))
        plan = await publish(
            bed.transactor, Definition(name="flow", version=1, steps=steps), caller=Caller("default", "tests")
        )
        runs = [await bed.start_again(plan, given) for _ in range(3)]
        await bed.finish(*runs)
        who = ["me", "changed"] if "who" in inputs else None
        for run_id in runs:
            for no in (0, 1):
                assert await bed.output(run_id, no) == {"cfg": {"n": 2}, "tags": ["x"], "who": who}


async def test_a_retry_and_an_undo_are_given_what_the_first_attempt_was_given(on_store: On) -> None:
    seen: list[Any] = []

    def unsteady(ctx: Context, cfg: dict[str, Any], tags: list[Any]) -> Any:
        seen.append((cfg["n"], list(tags), dict(ctx.input), dict(ctx.outputs["first"])))
        cfg["n"] += 1
        tags.append(ctx.attempt)
        ctx.input["more"] = 1
        ctx.outputs["first"]["more"] = 1
        if ctx.attempt < 3:
            raise ConnectionError("once more")
        return {}

    def take_back(cfg: dict[str, Any], tags: list[Any]) -> None:
        seen.append((cfg["n"], list(tags)))
        cfg["n"] += 1
        tags.append("undone")
        if len(seen) == 4:
            raise ConnectionError("once more")

    async with on_store() as bed:
        seen.clear()
        bed.handler("first", lambda: {"one": 1})
        bed.handler("unsteady", unsteady)
        bed.handler("take_back", take_back)
        bed.handler("break", lambda: fail("no"))
        again = Retry(max_attempts=3, initial=1_000)
        undo = Undo(executor=Handler(name="take_back"), inputs=CONSTANT, retry=again)
        run_id = await bed.start(
            step("first"),
            step("unsteady", "first", order=1, inputs=CONSTANT, retry=again, undo=undo, effect=Effect.WRITE),
            step("break", "unsteady", order=2, retry=Retry(max_attempts=1)),
            given={"in": 1},
            compensate_always=True,
        )
        await bed.finish(run_id)
        assert (await bed.run(run_id)).state is RunState.ROLLED_BACK
        assert seen == [(1, [], {"in": 1}, {"one": 1})] * 3 + [(1, [])] * 2


async def test_two_inputs_that_read_the_same_value_are_two_values(on_store: On) -> None:
    async with on_store() as bed:

        def both(a: list[int], b: list[int], whole: dict[str, Any]) -> list[Any]:
            a.append(2)
            return [a, b, whole["list"]]

        bed.handler("both", both)
        inputs = {"a": "${{ input.list }}", "b": "${{ input.list }}", "whole": "${{ input }}"}
        run_id = await bed.start(step("both", inputs=inputs), given={"list": [1]})
        await bed.finish(run_id)
        assert await bed.output(run_id, 0) == [[1, 2], [1], [1]]


@pytest.mark.parametrize(
    "executor",
    [
        Http(method="POST", url="http://localhost/", headers={"a": "b"}, body={"list": [1]}),
        Command(argv=("true", "x"), env={"A": "b"}),
        Agent(name="a", action="do"),
    ],
)
def test_headers_variables_and_bodies_without_expressions_belong_to_one_attempt(executor: Executor) -> None:
    definition = Definition(name="flow", version=1, steps=(step("a", executor=executor),))
    plan = build_plan(definition, Compiler(), definition_id=1, digest="", queues=(1, 0, 0))
    template, job = compiled(executor, plan), None
    first, second = template.render(job), template.render(job)  # type: ignore[arg-type]
    assert first == second == executor
    for name in ("headers", "body", "env"):
        if hasattr(executor, name):
            assert getattr(first, name) is not getattr(second, name)
            assert getattr(first, name) is not getattr(executor, name)


def _none(text: str, definition: Definition) -> Any:
    raise AssertionError(f"{definition.name} has no condition {text}")
