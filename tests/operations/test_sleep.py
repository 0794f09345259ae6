"""`sleep:` steps, on both databases: time alone ends them, no worker holds them, and no message does."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

import stepkeep as sk
from stepkeep.definition.native.reader import load_text
from stepkeep.kernel.definition import Definition, Dependency, StepDefinition, Wait
from stepkeep.kernel.errors import DefinitionError
from stepkeep.kernel.machine.states import RunState, StepState
from stepkeep.operations.pipeline.expire import sweep
from stepkeep.operations.runs.diagnosis import explain
from stepkeep.operations.runs.views import describe_run
from tests.workbench import SECOND, TENANT, on, task

HOUR = 3_600 * SECOND


def napping(**wait: object) -> Definition:
    nap = StepDefinition(name="nap", order=0, wait=Wait(event="sleep", sleeps=True, **wait))  # type: ignore[arg-type]
    then = replace(task("ship", 1), depends_on=(Dependency(step="nap"),))
    return Definition(name="napping", version=1, steps=(nap, then))


async def test_a_sleep_ends_by_time_alone_and_what_follows_runs(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(napping(deadline=HOUR))
        assert (await bench.state(run_id), await bench.claim(5)) == (RunState.BLOCKED, [])
        await bench.send(run_id, "sleep")
        bench.store.clock_offset = HOUR - 10 * SECOND
        await sweep(bench.transactor)
        assert await bench.step_states(run_id) == [StepState.AWAITING_EVENT, StepState.PENDING]
        bench.store.clock_offset = HOUR + SECOND
        await sweep(bench.transactor)
        assert await bench.step_states(run_id) == [StepState.SUCCEEDED, StepState.READY]
        assert await bench.work_off() == 1
        assert await bench.state(run_id) is RunState.SUCCEEDED


async def test_a_sleep_until_a_moment_that_has_passed_takes_no_time(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(napping(until=1))
        assert await bench.step_states(run_id) == [StepState.SUCCEEDED, StepState.READY]


async def test_the_view_and_the_explanation_say_until_when_it_sleeps(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(napping(deadline=HOUR))
        view = await describe_run(bench.transactor, run_id, tenant=TENANT)
        [wait] = view["run"]["waiting_for"]
        assert (wait["for"], view["steps"][0]["kind"]) == ("sleep", "sleep")
        [cause] = (await explain(bench.transactor, run_id, None, tenant=TENANT)).causes
        assert (cause.code, "nap sleeps until 2" in cause.sentence) == ("sleep", True)
        await bench.cancel(run_id)
        assert await bench.state(run_id) is RunState.CANCELLED


def test_a_program_that_works_on_a_run_waits_through_its_sleep_and_the_judge_agrees(tmp_path: Path) -> None:
    def then() -> int:
        return 1

    flow = sk.Workflow("nap", registry=sk.Registry())
    flow.sleep("nap", "10ms")
    flow.step("then", then)
    with sk.open(f"sqlite:///{tmp_path}/nap.db", registry=flow.registry) as engine:
        result = engine.run(flow, check=True)
        assert result.output == 1
        assert engine.certify(result.run_id).ok


def test_a_wait_for_a_blocked_run_goes_on_while_it_only_sleeps(database_url: str) -> None:
    flow = sk.Workflow("nap-and-ask", timeout="1h", registry=sk.Registry())
    flow.sleep("nap", "1h")
    asked = sk.Workflow("ask-beside", timeout="1h", registry=sk.Registry())
    asked.sleep("nap", "1h", after=[])
    asked.approval("sign-off", after=[])
    with sk.open(database_url) as engine:
        asleep = engine.start(flow).run_id
        began = time.monotonic()
        assert engine.wait(asleep, seconds=0.3, until_blocked=True).state == "blocked"
        assert time.monotonic() - began >= 0.3, "it returned before the time was over"
        beside = engine.start(asked).run_id
        assert [one["for"] for one in engine.wait(beside, seconds=60, until_blocked=True).waiting_for] == [
            "sleep",
            "approval",
        ]


@pytest.mark.parametrize(
    ("written", "wait"),
    [
        ("2h", Wait(event="sleep", deadline=2 * HOUR, sleeps=True)),
        ("{ for: 2h }", Wait(event="sleep", deadline=2 * HOUR, sleeps=True)),
        ('{ until: "1970-01-01T00:00:01Z" }', Wait(event="sleep", sleeps=True, until=SECOND)),
    ],
)
def test_a_sleep_is_written_as_a_duration_or_a_moment(written: str, wait: Wait) -> None:
    (nap,) = load_text(f"workflow: nap\nsteps: [{{ name: nap, sleep: {written} }}]", "nap.yaml").steps
    assert nap.wait == wait


@pytest.mark.parametrize("written", ["{}", '{ for: 2h, until: "2026-11-03T10:15Z" }', "{ until: soon }", "5"])
def test_a_sleep_without_one_moment_is_refused(written: str) -> None:
    with pytest.raises(DefinitionError):
        load_text(f"workflow: nap\nsteps: [{{ name: nap, sleep: {written} }}]", "nap.yaml")


@pytest.mark.parametrize(
    ("written", "given", "seconds"),
    [
        ("${{ input.pause }}", {"pause": "90s"}, 90),
        ("${{ input.pause }}", {"pause": 1.5}, 1.5),
        ("${{ input.pause }}", {"pause": 0}, 0),
        ("${{ input.pause * 60.0 }}", {"pause": 2.0}, 120),
        ("${{ input.pause }}d", {"pause": 2}, 172_800),
    ],
)
def test_an_expression_says_how_long_a_sleep_is(
    database_url: str, written: str, given: dict[str, object], seconds: float
) -> None:
    flow = load_text(f'workflow: nap\ninput: [pause]\nsteps: [{{ name: nap, sleep: "{written}" }}]', "nap.yaml")
    with sk.open(database_url) as engine:
        run_id = engine.start(flow, given).run_id
        told = map(json.loads, engine.log(run_id))
        [opened] = [line["metadata"] for line in told if line["trigger"] == "wait_opened"]
        assert opened["due_at"] - opened["at"] == seconds * SECOND
        assert engine.show(run_id)["run"]["state"] == ("succeeded" if seconds == 0 else "blocked")
        certificate = engine.certify(run_id)
        assert certificate.ok, certificate


def test_a_sleep_may_be_as_long_as_a_step_before_it_says(database_url: str) -> None:
    flow = sk.Workflow("asked", timeout="1h", registry=sk.Registry())

    @sk.step("asked.length", registry=flow.registry)
    def length() -> dict[str, str]:
        return {"pause": "30ms"}

    said = flow.step("ask", length)
    flow.sleep("nap", said.output.pause)
    with sk.open(database_url, registry=flow.registry) as engine:
        result = engine.run(flow, check=True)
        ask, nap = result.view["steps"]
        assert (ask["state"], nap["state"]) == ("succeeded", "succeeded")
        assert engine.certify(result.run_id).ok


@pytest.mark.parametrize(
    ("pause", "said"),
    [
        ("soon", "'soon' is not a duration"),
        ("30", "30 has no unit"),
        (-1, "-1 is out of bounds: a sleep takes 0s to 3650d"),
        (1e12, "1000000000000.0 is out of bounds"),
        (True, "true is neither a duration, such as 2h, nor a number of seconds"),
        (None, "A duration is text"),
        ([1], "A duration is text"),
    ],
)
def test_a_length_that_is_none_fails_the_step_as_validation_and_says_why(
    database_url: str, pause: object, said: str
) -> None:
    steps = '[{ name: nap, sleep: "${{ input.pause }}" }, { name: ask, approval: ok }]'
    text = f"workflow: nap\ninput: [pause]\nsteps: {steps}"
    with sk.open(database_url) as engine:
        run_id = engine.start(load_text(text, "nap.yaml"), {"pause": pause}).run_id
        view = engine.show(run_id)
        nap = view["steps"][0]
        assert (view["run"]["state"], nap["state"], nap["category"]) == ("failed", "failed", "validation")
        assert f"its sleep has no length: {said}" in nap["error"]
        certificate = engine.certify(run_id)
        assert certificate.ok, certificate


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("${{ input.paus }}", "paus"),
        ("${{ steps.later.output.pause }}", "later"),
        ("${{ secret.PAUSE }}", "secret"),
    ],
)
def test_a_length_that_reads_what_it_may_not_is_refused_at_publication(written: str, said: str) -> None:
    text = (
        f'workflow: nap\ninput: [pause]\nsteps: [{{ name: nap, sleep: "{written}" }}, {{ name: later, approval: ok }}]'
    )
    with pytest.raises(DefinitionError, match=said):
        load_text(text, "nap.yaml")
