"""Arguments of a wrong type are refused in words that name the parameter, wherever they are handed over."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.worker.context import Context
from stepkeep.worker.settings import Settings


class Text(str):
    """A subclass of str, as templates and enumerations have them."""


def deep() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


def workflow() -> sk.Workflow:
    return sk.Workflow("w", registry=sk.Registry())


def context() -> Context:
    return Context(run_id="r", workflow="w", version=1, step="s")


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: sk.Retry(factor=None), "factor"),
        (lambda: sk.Retry(factor="2"), "factor"),
        (lambda: sk.Retry(factor=float("nan")), "factor"),
        (lambda: sk.Retry(factor=10**400), "factor"),
        (lambda: sk.Retry(jitter={}), "jitter"),
        (lambda: sk.Retry(backoff=5), "backoff"),
        (lambda: sk.Retry(on=5), "on"),
        (lambda: sk.Retry(on="timeout"), "on"),
        (lambda: sk.Retry(on=[[]]), "no error category"),
        (lambda: sk.Retry(on=[1, "timeout"]), "no error category"),
        (lambda: sk.Retry(max_attempts=10**5000), "max_attempts"),
        (lambda: sk.wait_for("e", emit=5), "emit"),
        (lambda: sk.wait_for("e", on_timeout=deep()), "on_timeout"),
        (lambda: sk.agent(None, registry=sk.Registry())(print), "name"),
        (lambda: sk.agent("a", retry="3", registry=sk.Registry())(print), "retry"),
        (lambda: sk.step("a", retry=3, registry=sk.Registry())(print), "retry"),
        (lambda: sk.step("a", capabilities=5, registry=sk.Registry())(print), "capabilities"),
        (lambda: sk.Workflow("w", labels=5), "labels"),
        (lambda: sk.Workflow("w", labels="ab"), "labels"),
        (lambda: sk.Workflow("w", rules=5), "rules"),
        (lambda: sk.Workflow("w", output=deep()).check(), "nested"),
        (lambda: workflow().command("a", 5), "argv"),
        (lambda: workflow().command("a", ["b"], env=5), "env"),
        (lambda: workflow().http("a", "https://example.com", headers=["x"]), "headers"),
        (lambda: workflow().approval("a", roles=5), "roles"),
        (lambda: workflow().approval("a", not_=object()), "not_"),
        (lambda: workflow().step("a", "h", after=5), "after"),
        (lambda: workflow().step("a", deep()), "no name of its own"),
        (lambda: context().cost(usd="1"), "usd"),
        (lambda: context().cost(tokens=object()), "tokens"),
        (lambda: Settings(concurrency="4"), "concurrency"),
        (lambda: Settings(threads=-1), "threads"),
    ],
)
def test_a_wrong_argument_is_refused_by_name(call: Callable[[], object], named: str) -> None:
    with pytest.raises(sk.InvalidInput, match=named):
        call()


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda engine, run: engine.wait(run, seconds="5"), "seconds"),
        (lambda engine, run: engine.wait(run, seconds=float("nan")), "seconds"),
        (lambda engine, run: engine.wait(run, seconds=datetime.timedelta(seconds=1)), "seconds"),
        (lambda engine, run: engine.work_on(run, concurrency="4"), "concurrency"),
        (lambda engine, run: engine.show(run, as_=5), "dialect"),
        (lambda engine, run: engine.log(run, as_=["ioa"]), "dialect"),
        (lambda engine, run: engine.runs(state=5), "state"),
        (lambda engine, run: engine.runs(state=["nonsense"]), "nonsense"),
        (lambda engine, run: engine.complete(run, "a", token="t", evidence=5), "evidence"),
        (lambda engine, run: engine.cancel(run, compensate=object()), "compensate"),
        (lambda engine, run: engine.start("gated", start_now=set()), "start_now"),
        (lambda engine, run: engine.prune(archive=5, keep=1), "archive"),
        (lambda engine, run: engine.prune(archive=None, keep=1, batch="5"), "batch"),
    ],
)
def test_the_engine_refuses_a_wrong_argument_by_name(
    call: Callable[[Any, str], object], named: str, tmp_path: Path
) -> None:
    gated = sk.Workflow("gated", registry=sk.Registry())
    gated.approval("sign-off")
    with sk.open(f"sqlite:///{tmp_path}/a.db") as engine:
        run = engine.start(gated).run_id
        with pytest.raises(sk.InvalidInput, match=named):
            call(engine, run)
        assert engine.show(run)["run"]["state"] == "blocked"


def test_texts_of_a_subclass_are_taken_as_what_they_say() -> None:
    made = workflow()
    made.step(Text("a"), Text("some.handler"), description=Text("b"), inputs={Text("k"): [Text("v")]})
    [step] = made.definition().steps
    assert (step.name, step.inputs) == ("a", {"k": ["v"]})
    assert type(step.name) is str


def test_iterables_of_any_kind_are_lists() -> None:
    assert sk.Retry(on=(name for name in ("timeout", "agent"))).to_kernel().on == ("agent", "timeout")
    assert sk.wait_for("e", emit=iter(["a"])).emit == (("a", None),)
