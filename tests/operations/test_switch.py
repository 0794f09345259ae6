"""A choice on both databases, with real workers, in all dialects, and what the judge says of a log that lies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.conformance.verify import verify_lines
from stepkeep.conformance.words.replay import replay_lines
from stepkeep.dialects.registry import judged
from stepkeep.kernel.definition import Case, Definition, Handler, StepDefinition, Switch
from stepkeep.operations.logs.lines import encode_line
from stepkeep.operations.logs.log import canonical_machines, lines_of
from stepkeep.operations.runs.diagnosis import explain
from stepkeep.operations.runs.views import describe_run
from tests.workbench import TENANT, on

undone: list[str] = []


def send_by_bank(amount: int) -> dict[str, Any]:
    return {"by": "bank", "amount": amount}


def charge_card(amount: int) -> dict[str, Any]:
    if amount < 0:
        raise sk.fail("nothing to charge")
    return {"by": "card", "amount": amount}


def pay_back(by: str) -> None:
    undone.append(by)


def write_receipt(paid: dict[str, Any], fails: bool = False) -> dict[str, Any]:
    if fails:
        raise sk.fail("no paper")
    return {"receipt": paid["by"]}


def payout() -> sk.Workflow:
    flow = sk.Workflow("payout", on_failure="compensate")
    paid = flow.switch(
        "pay",
        flow.case("transfer", send_by_bank, if_=flow.input.amount > 1000, undo=pay_back),
        flow.case("card", charge_card, undo=pay_back),
    )
    flow.step("receipt", write_receipt, inputs={"paid": paid.output, "fails": flow.input.fails})
    return flow


@pytest.mark.parametrize(
    ("given", "state", "case", "back"),
    [
        ({"amount": 5_000, "fails": False}, "succeeded", "transfer", []),
        ({"amount": 5, "fails": False}, "succeeded", "card", []),
        ({"amount": 5_000, "fails": True}, "rolled_back", "transfer", ["bank"]),
        ({"amount": -1, "fails": False}, "failed", "card", []),
    ],
)
def test_a_choice_ends_as_documented_and_is_certified(
    database_url: str, given: dict[str, Any], state: str, case: str, back: list[str]
) -> None:
    undone.clear()
    with sk.Engine(database_url) as engine:
        result = engine.run(payout(), given, check=False)
        assert result.state == state, result.error
        assert undone == back
        steps = {step["name"]: step for step in engine.show(result.id)["steps"]}
        assert (steps["pay"]["kind"], steps["pay"]["case"]) == ("switch", case)
        assert not any(step["state"] == "skipped" for step in steps.values())
        certificate = engine.certify(result.id)
        assert certificate.ok, certificate


def chosen(amount: int = 5) -> Definition:
    cases = (
        Case(
            name="large",
            when="input.amount > 1000",
            step=StepDefinition(name="pay", order=0, executor=Handler(name="a")),
        ),
        Case(name="small", step=StepDefinition(name="pay", order=0, executor=Handler(name="b"))),
    )
    step = StepDefinition(name="pay", order=0, growth=Switch(max=2, cases=cases))
    return Definition(name="chosen", version=1, steps=(step,))


async def test_a_choice_that_waits_names_the_case_it_took(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(chosen(), b'{"amount": 5}')
        told = await explain(bench.transactor, run_id, "pay", tenant=TENANT)
        assert "pay took small, and waits for it" in " ".join(cause.sentence for cause in told.causes)
        assert await bench.work_off() == 1
        view = await describe_run(bench.transactor, run_id, tenant=TENANT)
        assert [(step["name"], step.get("case")) for step in view["steps"]] == [("pay", "small"), ("pay[1]", None)]


# -- the judge ---------------------------------------------------------------------------------------------------------
async def told_lines(tmp_path: Path, dialect: str | None = None) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []

    async with on(f"sqlite:///{tmp_path / 'log.db'}") as bench:
        run_id = await bench.start(chosen(), b'{"amount": 5}')
        await bench.work_off(1)
        [whole] = await bench.store.read_whole(TENANT, [run_id])
        lines.extend(lines_of(whole, await bench.publish(chosen()), dialect))
    return lines


@pytest.mark.parametrize("dialect", [None, "ioa", "run", "linear", "action", "workstream"])
async def test_the_true_log_is_right_in_every_dialect(tmp_path: Path, dialect: str | None) -> None:
    lines = [encode_line(line) for line in await told_lines(tmp_path, dialect)]
    report = verify_lines(lines, canonical_machines()) if dialect is None else replay_lines(lines, judged(dialect))
    assert report.findings == ()


@pytest.mark.parametrize(
    ("case", "says"),
    [(0, "case 1 is planned, but its cause says that case 0 is taken"), (2, "0 to 1"), (None, "0 to 1")],
)
async def test_a_log_that_lies_about_the_case_is_found(tmp_path: Path, case: int | None, says: str) -> None:
    lines = json.loads(json.dumps(await told_lines(tmp_path)))
    for line in lines:
        grown = (line.get("metadata", {}).get("detail") or {}).get("plan_grown")
        if grown is not None:
            grown["pay"]["case"] = case
    report = verify_lines(map(encode_line, lines), canonical_machines())
    assert any(says in finding.message for finding in report.findings)
