"""The judge on checkpoints: of a running step, under its claim, by its holder, each name once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

import stepkeep as sk
from stepkeep.conformance.digests import PayloadBytes, compare_payloads, sha256_of
from stepkeep.conformance.verify import verify_lines
from stepkeep.operations.logs.log import canonical_machines

Doc = dict[str, Any]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> list[Doc]:
    """The canonical log of a run whose first step has recorded two checkpoints."""

    async def judged_pay(ctx: sk.Context) -> Any:
        return [await ctx.once("charge", lambda: 7), await ctx.once("ship", lambda: 8)]

    workflow = sk.Workflow("pay")
    workflow.step("b", judged_pay, after=workflow.step("a", judged_pay))
    path: Path = tmp_path_factory.mktemp("judge")
    with sk.Engine(f"sqlite:///{path}/a.db") as engine:
        result = engine.run(workflow)
        return [msgspec.json.decode(line) for line in engine.log(result.id)]


def recorded(log: list[Doc]) -> list[int]:
    return [place for place, line in enumerate(log) if line["metadata"].get("event") == "checkpoint_recorded"]


def findings(log: list[Doc]) -> list[str]:
    """What the judge says, apart from the hashes, which every change breaks."""
    found = verify_lines([msgspec.json.encode(line) for line in log], canonical_machines())
    return [one.message for one in found.findings if one.code not in ("hash", "head", "encoding", "gap")]


def test_a_true_log_has_no_finding(log: list[Doc]) -> None:
    assert len(recorded(log)) == 4
    assert findings(log) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"fence": 2}, "metadata.detail.fence is 2, but its last claim has 1"),
        ({"no": 1, "step": "b"}, "records 'charge', and no worker runs it"),
        ({"no": 7}, "which is no step of this number"),
        ({"checkpoint": "ship"}, "has the checkpoint 'ship' already"),
        ({"digest": "x"}, "metadata.detail.digest"),
    ],
)
def test_a_checkpoint_that_cannot_be_true_is_a_finding(log: list[Doc], change: Doc, said: str) -> None:
    forged = msgspec.json.decode(msgspec.json.encode(log))
    forged[recorded(log)[0]]["metadata"]["detail"].update(change)
    assert any(said in one for one in findings(forged)), findings(forged)


def test_a_checkpoint_of_another_worker_is_a_finding(log: list[Doc]) -> None:
    forged = msgspec.json.decode(msgspec.json.encode(log))
    forged[recorded(log)[0]]["metadata"]["actor"] = "somebody:else:1"
    assert any("only the worker that claimed" in one for one in findings(forged)), findings(forged)


def test_stored_checkpoints_are_compared_with_their_digests(log: list[Doc]) -> None:
    true = {(no, name): value for no in (0, 1) for name, value in (("charge", b"7"), ("ship", b"8"))}

    def wrong(stored: dict[tuple[int, str], bytes]) -> list[str]:
        payloads = PayloadBytes(
            input=b"{}", attempts={(0, 1): b"[7,8]", (1, 1): b"[7,8]"}, steps={}, checkpoints=stored
        )
        return [said for _, said in compare_payloads(log[1:], payloads) if said is not None]

    assert wrong(true) == []
    assert wrong(true | {(0, "charge"): b"9"}) == [
        "the checkpoint 'charge' of step 'a' does not have the digest that the journal has for it"
    ]
    assert wrong(true | {(1, "more"): b"1"}) == ["step number 1 has a checkpoint 'more' that the journal does not know"]
    assert sha256_of(b"7") in str(log)
