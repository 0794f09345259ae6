"""Seed 003 in its own words: RunV1, actions with their attempts, evidence (§5) and the compensation summary (§4)."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.seeds.action_stage import Stage, action, check, compensated, document, sequence, side_effect, stage_on
from tests.workbench import ACTOR, TENANT, chain

from stepkeep.dialects.action.evidence import hash_of, verify_evidence
from stepkeep.kernel.errors import Conflict
from stepkeep.operations.runs.projected import list_runs_as
from stepkeep.store.records import RunFilter

SECTION_5 = {"runId", "actionId", "attempt", "startedAtIso", "endedAtIso", "outcome", "correlationId"}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with stage_on(f"sqlite:///{tmp_path}/stepkeep.db") as opened:
        yield opened


def lived(stage: Stage) -> dict[str, Any]:
    """A run with a retry, an approval, a manual completion, a failure, a compensation and an effect that stays."""
    held = action("b", 2, "a", executionTierOverride="HumanApprove")
    manual = action("c", 3, "b", completionMode="ManualOnly")
    capabilities = compensated("a", **{"b:do": side_effect()})
    stage.start(action("a", 1), held, manual, action("d", 4, "c"), capabilities=capabilities, schemaVersion=1)
    stage.fail("a", "transient", "503").later(1).finish("a")
    stage.decide("b", by="bea", comment="fine")
    stage.later(2).finish("b", "c").later(3)
    stage.signal(stage.payload("c", evidenceRefs=["photo-1"]), by="dora")
    stage.later(1).fail("d", "conflict", "already posted").later(1).finish("undo:a")
    return stage.view()


def payloads(view: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [entry["payload"] for entry in view["evidence"] if entry["payload"]["kind"] == kind]


# -- RunV1 -----------------------------------------------------------------------------------------------------------
def test_a_run_has_the_fields_of_run_v1(stage: Stage) -> None:
    view = lived(stage)
    assert view["runId"] == stage.run_id
    assert (view["workflowId"], view["workspaceId"], view["executionTier"]) == ("flow", "ws-1", "Auto")
    assert (view["correlationId"], view["initiatedByUserId"], view["status"]) == ("order-4711", ACTOR, "Failed")
    assert view["createdAtIso"] <= view["startedAtIso"] <= view["endedAtIso"]
    assert view["error"] == {"class": "business_conflict", "retryable": False, "message": "already posted"}


def test_a_run_that_nobody_has_begun_has_not_started(stage: Stage) -> None:
    view = stage.start(*sequence("a")).view()
    assert view["status"] == "Pending"
    assert "startedAtIso" not in view
    assert "endedAtIso" not in view
    assert view["evidence"] == []


def test_actions_say_what_was_written_and_what_became_of_them(stage: Stage) -> None:
    first, held, manual, last = lived(stage)["actions"]
    assert (first["actionId"], first["order"], first["operation"]) == ("a", 1, "a:do")
    assert (first["portFamily"], first["executionTier"], first["completionMode"]) == (
        "FinanceAccounting",
        "Auto",
        "Auto",
    )
    assert first["attempts"][0]["error"] == {"class": "transient", "retryable": True, "message": "503"}
    assert [attempt["outcome"] for attempt in first["attempts"]] == ["Failed", "Succeeded"]
    assert first["output"] == {"ref": "e-1"}
    assert held["executionTier"] == "HumanApprove"
    assert held["approval"]["decision"] == "approved"
    assert manual["completionMode"] == "ManualOnly"
    assert manual["manualCompletion"]["evidenceRefs"] == ["photo-1"]
    assert (last["status"], last["dependsOn"]) == ("Failed", ["c"])


def test_a_list_of_runs_has_their_status_in_this_dialect(stage: Stage) -> None:
    stage.start(*sequence("a")).finish("a")
    rows = stage.wait(list_runs_as(stage.bench.transactor, RunFilter(tenant=TENANT), "action"))["runs"]
    assert [(row["runId"], row["status"]) for row in rows] == [(stage.run_id, "Succeeded")]


def test_a_run_written_natively_can_be_shown_as_well(stage: Stage) -> None:
    stage.start_with(chain("native", 2)).finish("s00000", "s00001")
    view = stage.view()
    assert (view["status"], view["executionTier"]) == ("Succeeded", "Auto")
    assert [each["status"] for each in view["actions"]] == ["Succeeded", "Succeeded"]
    assert "workspaceId" not in view


# -- §5 evidence -----------------------------------------------------------------------------------------------------
def test_5_every_attempt_has_evidence_with_all_that_the_seed_asks_for(stage: Stage) -> None:
    view = lived(stage)
    attempts = payloads(view, "attempt")
    assert [(each["actionId"], each["attempt"], each["outcome"]) for each in attempts] == [
        ("a", 1, "Failed"),
        ("a", 2, "Succeeded"),
        ("b", 1, "Succeeded"),
        ("c", 1, "Succeeded"),
        ("d", 1, "Failed"),
    ]
    for each in attempts + payloads(view, "compensationAttempt"):
        assert set(each) >= SECTION_5
        assert each["startedAtIso"] <= each["endedAtIso"]
        assert each["correlationId"] == "order-4711"
    assert attempts[0]["error"]["class"] == "transient"
    assert attempts[-1]["error"]["class"] == "business_conflict"


def test_5_every_terminal_transition_has_evidence_too(stage: Stage) -> None:
    view = lived(stage)
    endings = payloads(view, "transition")
    assert [(each["actionId"], each["outcome"]) for each in endings] == [
        ("a", "Succeeded"),
        ("b", "Succeeded"),
        ("c", "Succeeded"),
        ("d", "Failed"),
    ]
    assert all(set(each) >= SECTION_5 for each in endings + payloads(view, "compensation"))
    assert endings[0]["attempt"] == 2
    assert endings[-1]["error"]["class"] == "business_conflict"


def test_5_an_action_that_never_ran_has_evidence_of_its_end(stage: Stage) -> None:
    stage.start(*sequence("a", "b")).fail("a")
    ending = payloads(stage.view(), "transition")[-1]
    assert (ending["actionId"], ending["outcome"], ending["attempt"]) == ("b", "Cancelled", 0)


def test_decisions_are_evidence_with_the_person_behind_them(stage: Stage) -> None:
    view = lived(stage)
    [approval] = [entry for entry in view["evidence"] if entry["category"] == "Approval"]
    assert approval["actor"] == {"kind": "User", "userId": "bea"}
    assert approval["payload"]["outcome"] == "approved"
    [signal] = [entry for entry in view["evidence"] if entry["payload"]["kind"] == "manualCompletion"]
    assert signal["actor"] == {"kind": "User", "userId": "dora"}
    assert signal["payload"]["evidenceRefs"] == ["photo-1"]
    assert signal["payload"]["claim"]["actorUserId"] == "claims-to-be-carl"


def test_4_the_compensation_summary_is_attached_to_the_evidence_of_the_runs_end(stage: Stage) -> None:
    view = lived(stage)
    last = view["evidence"][-1]
    assert (last["category"], last["payload"]["kind"], last["payload"]["outcome"]) == ("System", "run", "Failed")
    assert last["payload"]["compensation"] == view["compensation"]
    assert view["compensation"]["notCompensable"] == ["b"]
    assert [each["actionId"] for each in payloads(view, "notCompensable")] == ["b"]
    [hook] = payloads(view, "compensationAttempt")
    assert (hook["operation"], hook["idempotencyKey"]) == ("a:undo", f"{stage.run_id}:a:compensate")


def test_summaries_name_no_error_texts(stage: Stage) -> None:
    """EvidenceEntryV1: a summary holds nothing personal; what a handler said may."""
    assert all("already posted" not in entry["summary"] for entry in lived(stage)["evidence"])


def test_evidence_has_the_shape_of_evidence_entry_v1_and_an_unbroken_chain(stage: Stage) -> None:
    entries = lived(stage)["evidence"]
    for entry in entries:
        assert {"evidenceId", "workspaceId", "occurredAtIso", "category", "summary", "actor", "links"} <= set(entry)
        assert entry["links"] == {"runId": stage.run_id}
        assert entry["category"] in {"Plan", "Action", "Approval", "Policy", "PolicyViolation", "System"}
    assert "previousHash" not in entries[0]
    assert len({entry["evidenceId"] for entry in entries}) == len(entries)
    assert verify_evidence(entries) == []


def test_evidence_only_grows(stage: Stage) -> None:
    """What was shown once stays as it was: same ids, same hashes."""
    stage.start(*sequence("a", "b"))
    stage.fail("a", "transient").later(1)
    seen = stage.view()["evidence"]
    stage.finish("a").later(1).finish("b")
    assert stage.view()["evidence"][: len(seen)] == seen
    assert len(stage.view()["evidence"]) > len(seen)


def tampered(entries: list[dict[str, Any]], how: str) -> list[dict[str, Any]]:
    told = copy.deepcopy(entries)
    if how == "changed":
        told[2]["payload"]["outcome"] = "Succeeded, honestly"
    elif how == "changed and hashed again":
        told[2]["summary"] = "nothing to see"
        told[2]["hashSha256"] = hash_of(told[2])
    elif how == "dropped":
        del told[2]
    elif how == "moved":
        told[1], told[2] = told[2], told[1]
    return told


@pytest.mark.parametrize(
    ("how", "finding"),
    [
        ("changed", "hash_mismatch at 2"),
        ("changed and hashed again", "chain_break at 3"),
        ("dropped", "chain_break at 2"),
        ("moved", "chain_break at 1"),
    ],
)
def test_a_changed_chain_is_found(stage: Stage, how: str, finding: str) -> None:
    assert finding in verify_evidence(tampered(lived(stage)["evidence"], how))


def test_time_that_runs_backwards_is_found() -> None:
    first = {"occurredAtIso": "2026-01-02T00:00:00.000Z"}
    first["hashSha256"] = hash_of(first)
    second = {"occurredAtIso": "2026-01-01T00:00:00.000Z", "previousHash": first["hashSha256"]}
    second["hashSha256"] = hash_of(second)
    assert verify_evidence([first, second]) == ["timestamp_not_monotonic at 1"]


# -- the plan ----------------------------------------------------------------------------------------------------------
def test_a_run_has_a_plan_whose_effects_are_verified_as_actions_succeed(stage: Stage) -> None:
    """PlanV1 of the companions: planned effects, verified ones, and what an approval stands for."""
    capabilities = compensated("a", **{"b:do": side_effect()})
    held = action("b", 2, "a", executionTierOverride="HumanApprove")
    stage.start(action("a", 1), held, action("c", 3, "b"), capabilities=capabilities)
    stage.finish("a")
    plan = stage.view()["plan"]
    assert (plan["planId"], plan["createdByUserId"]) == (f"{stage.run_id}/plan", ACTOR)
    assert [effect["effectId"] for effect in plan["plannedEffects"]] == ["a", "b"], "c only reads"
    assert plan["plannedEffects"][0]["idempotencyKey"] == f"{stage.run_id}:a"
    assert [effect["effectId"] for effect in plan["verifiedEffects"]] == ["a"]
    stage.decide("b", by="bea", comment="fine")
    stage.finish("b", "c")
    later = stage.view()
    assert later["plan"]["digestSha256"] == plan["digestSha256"], "a plan does not change after its approval"
    [approval] = payloads(later, "approval")
    assert (approval["planId"], approval["planDigestSha256"]) == (plan["planId"], plan["digestSha256"])


def test_evidence_of_an_attempt_refers_to_its_output_by_digest(stage: Stage) -> None:
    view = lived(stage)
    refs = {one["actionId"]: one["payloadRefs"] for one in payloads(view, "attempt") if "payloadRefs" in one}
    assert refs["a"] == [
        {
            "kind": "Artifact",
            "uri": f"stepkeep:runs/{stage.run_id}/steps/a/output",
            "contentType": "application/json",
            "sha256": hashlib.sha256(b'{"ref":"e-1"}').hexdigest(),
        }
    ]
    assert "d" not in refs, "it failed, and has no output"
    assert verify_evidence(view["evidence"]) == []


def test_a_run_is_degraded_while_an_action_is_tried_again(stage: Stage) -> None:
    stage.start(*sequence("a", "b"))
    assert "controlState" not in stage.view()
    stage.fail("a", "transient", "503")
    assert stage.view()["controlState"] == "degraded"
    stage.later(1).finish("a", "b")
    assert "controlState" not in stage.view()


def test_a_version_that_is_not_active_is_published_and_never_started(stage: Stage) -> None:
    report = check(document(action("a", 1), active=False))
    assert report.problems == ()
    assert any("not active" in warning.message for warning in report.warnings)
    assert report.definition is not None
    with pytest.raises(Conflict, match="version 1 of flow is not active: no run of it may start"):
        stage.start_with(report.definition)
