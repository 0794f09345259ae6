"""`engine.errors`: what stopped runs, by workflow, step and message; and the job that retries. On both stores."""

from __future__ import annotations

import json
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.definition.native.reader import load_text
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.definition import Definition
from stepkeep.kernel.errors import InvalidInput
from stepkeep.operations.continuation.jobs import JobSweep
from stepkeep.operations.runs import failing
from stepkeep.operations.runs.failing import kind_of, term_of


@sk.step("errors.look")
def look(number: int) -> int:
    return number


@sk.step("errors.pay")
def pay(number: int) -> str:
    raise ValueError(f"account {number} is closed since 2024-01-{number:02}")


def workflow(name: str) -> Definition:
    given = {"with": {"number": "${{ input.number }}"}, "effect": "read", "retry": {"max_attempts": 1}}
    steps = [{"name": one, "uses": f"errors.{one}", **given} for one in ("look", "pay")]
    return load_text(json.dumps({"workflow": name, "timeout": "1h", "input": ["number"], "steps": steps}), "e.yaml")


def test_errors_that_differ_by_numbers_alone_are_one(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with sk.open(database_url) as engine:
        runs = [engine.run(workflow("payout"), {"number": number}).run_id for number in (1, 2, 3)]
        engine.run(workflow("refund"), {"number": 4})
        stopped = engine.start(workflow("payout"), {"number": 5}).run_id
        engine.cancel(stopped, reason="account 5 is not ours")
        told = engine.errors(window="1h")
        assert [(one.workflow, one.step, one.runs, one.versions) for one in told.errors] == [
            ("payout", "pay", 3, [1]),
            ("refund", "pay", 1, [1]),
        ]
        first = told.errors[0]
        assert (told.looked_at, told.is_complete) == (4, True)
        assert "account # is closed since #-#-#" in first.message
        assert (first.newest_run, sum(first.spans), len(first.spans)) == (runs[-1], 3, 30)
        assert str(first.first_at) <= str(first.last_at)
        assert {one["id"] for one in engine.runs(workflow="payout", error=first.term)["runs"]} == set(runs)
        assert [one.workflow for one in engine.errors(workflow="refund").errors] == ["refund"]
        monkeypatch.setattr(failing, "MOST_FAILURES", 2)
        assert (engine.errors().looked_at, engine.errors().is_complete) == (2, False)


async def test_a_job_does_only_what_did_not_finish(database_url: str) -> None:
    async with AsyncEngine(database_url) as engine:
        runs = [(await engine.run(workflow("payout"), {"number": number})).run_id for number in (1, 2)]
        asked: dict[str, Any] = {"where": {"workflow": "payout"}, "unfinished": True, "idempotency_key": "k"}
        job, again = [await engine.jobs.start("rerun", **asked) for _ in range(2)]
        assert (job.unfinished, again.job, again.created) == (True, job.job, False)
        assert await JobSweep(engine.transactor).sweep("w-1") == 2
        told = (await engine.jobs.runs(str(job.job))).runs
        assert [one.result.value for one in told] == ["done", "done"]
        for old, one in zip(sorted(runs), told, strict=True):
            new = await engine.show(str(one.new_run_id))
            assert (one.run_id, new.run.continues and new.run.continues.run) == (old, old)
            assert [(step.state, step.adopted is not None) for step in new.steps] == [
                ("succeeded", True),
                ("ready", False),
            ]
        with pytest.raises(InvalidInput, match="unfinished goes with rerun"):
            await engine.jobs.start("cancel", where={"workflow": "payout"}, unfinished=True)


def test_the_term_of_a_message_finds_it() -> None:
    assert kind_of("  order 4711: no route to 10.0.0.1:8080 (0xdeadbeef01)\nTraceback") == (
        "order #: no route to # (#)"
    )
    assert kind_of("run 019b7e2c-5a10-7c3e-9d7b-2f6f0a4c81d5 of a facade") == "run # of a facade"
    assert kind_of("") == ""
    assert term_of("order #: no route to #") == ": no route to"
    assert term_of("ValueError: order # has no customer") == "has no customer"
    assert term_of("ValueError: not there") == "ValueError: not there"
    assert term_of("# of #") == ""
