"""`show --at`: a run as it stood, from its journal alone; after the last entry it agrees with the rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.damage import damage

import stepkeep as sk
from stepkeep.conformance.moment import follow_to
from stepkeep.kernel.errors import InvalidInput, NotFound
from stepkeep.operations.logs.log import canonical_machines


@sk.step("past.charge")
def charge() -> dict[str, int]:
    return {"amount": 40}


@sk.step("past.refund")
def refund() -> str:
    return "refunded"


@sk.step("past.ship", retry=sk.Retry(max_attempts=2, initial="10ms", jitter=0))
def ship() -> None:
    raise ConnectionError("no route to the warehouse")


def order() -> sk.Workflow:
    flow = sk.Workflow("past-order", timeout="1h", on_failure="compensate")
    charged = flow.step("charge", charge, undo=refund)
    signed = flow.approval("sign-off", after=charged, deadline="1h")
    flow.step("ship", ship, after=signed)
    return flow


@pytest.fixture
def rolled_back(database_url: str) -> Any:
    """An engine, and a run with a gate, a retry, a failure and an undo step."""
    with sk.open(database_url) as engine:
        worker = engine.start_worker()
        run = engine.start(order(), {"item": "lamp"}, by="ann").run_id
        engine.wait(run, until_blocked=True)
        engine.approve(run, "sign-off", by="bo")
        assert engine.wait(run).state == "rolled_back"
        worker.stop()
        yield engine, run


def states(view: dict[str, Any]) -> dict[str, str]:
    return {step["name"]: step["state"] for step in view["steps"]}


def test_each_entry_shows_the_run_as_it_stood(rolled_back: tuple[sk.Engine, str]) -> None:
    engine, run = rolled_back
    last = engine.show(run, at=1)["at"]["last_seq"]
    views = [engine.show(run, at=seq) for seq in range(1, last + 1)]
    assert all(view["findings"] == [] for view in views)
    assert [view["at"]["seq"] for view in views] == list(range(1, last + 1))
    told = list(dict.fromkeys(view["run"]["state"] for view in views))
    assert told == ["queued", "running", "blocked", "running", "stopping", "compensating", "rolled_back"] or told == [
        *("queued", "running", "blocked", "compensating", "rolled_back")
    ]
    waiting = next(view for view in views if view["run"]["state"] == "blocked")
    assert states(waiting) == {"charge": "succeeded", "sign-off": "awaiting_approval", "ship": "pending"}
    assert waiting["steps"][0]["output"] == {"amount": 40}
    assert waiting["run"]["input"] == {"item": "lamp"}
    retrying = next(view for view in views if states(view)["ship"] == "retrying")
    assert "no route" in retrying["steps"][2]["error"]
    running = next(view for view in views if states(view)["charge"] == "running")
    assert running["steps"][0]["holder"] is not None


def test_after_the_last_entry_the_journal_agrees_with_the_rows(rolled_back: tuple[sk.Engine, str]) -> None:
    engine, run = rolled_back
    now = engine.show(run)
    then = engine.show(run, at=datetime.now(UTC))
    assert then["at"]["seq"] == then["at"]["last_seq"]
    assert then["run"]["state"] == now["run"]["state"]
    assert states(then) == states(now)
    assert [step["output"] for step in then["steps"]] == [step["output"] for step in now["steps"]]


def test_a_moment_before_the_run_and_an_entry_after_its_last_are_not_found(rolled_back: tuple[sk.Engine, str]) -> None:
    engine, run = rolled_back
    with pytest.raises(NotFound, match="did not exist then"):
        engine.show(run, at=datetime.now(UTC) - timedelta(days=1))
    with pytest.raises(NotFound, match="no entry 999"):
        engine.show(run, at=999)
    for wrong in (0, -1, True, "3", 1.5, datetime(2026, 1, 1)):  # noqa: DTZ001 - a time without a zone is refused
        with pytest.raises(InvalidInput):
            engine.show(run, at=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="neither a step nor a dialect"):
        engine.show(run, at=1, step="charge")


def changed(line: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    document = json.loads(line)
    change(document)
    return json.dumps(document, separators=(",", ":")).encode()


def test_a_changed_journal_is_said_to_be_unsound_from_that_entry_on(rolled_back: tuple[sk.Engine, str]) -> None:
    engine, run = rolled_back
    lines = engine.log(run)
    place = next(number for number, line in enumerate(lines) if b'"gate_opened"' in line)
    seq = json.loads(lines[place])["metadata"]["seq"]
    lines[place] = changed(lines[place], lambda line: line.update(to_state="succeeded"))
    before = follow_to(lines, canonical_machines(), seq=seq - 1)
    after = follow_to(lines, canonical_machines(), seq=seq)
    assert before is not None
    assert before.findings == ()
    assert after is not None
    assert after.findings


async def test_a_value_without_the_digest_of_the_journal_is_not_shown(
    rolled_back: tuple[sk.Engine, str], database_url: str
) -> None:
    engine, run = rolled_back
    other = "'{\"amount\":41}'"
    kept = f"convert_to({other}, 'UTF8')" if database_url.startswith("postgres") else f"cast({other} as blob)"
    await damage(database_url, f"update attempts set output = {kept} where no = 0")
    step = engine.show(run, at=datetime.now(UTC))["steps"][0]
    assert (step["state"], step["output"]) == ("succeeded", None)
    assert "digest" in step["output_unknown"]
