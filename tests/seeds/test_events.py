"""Events of the seeds to other systems: 000's telemetry, 001's webhook of a run, 003's domain events as CloudEvents."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.workbench import ACTOR, TENANT, Bench, chain, on

from stepkeep.dialects.registry import check_file, load_file
from stepkeep.kernel.definition import Approval, PolicyEffect, PolicyRule
from stepkeep.kernel.errors import NotAllowed
from stepkeep.kernel.people.authority import Caller
from stepkeep.network.allowing import AllowList
from stepkeep.operations.delivery.dialect_folds import dialect_events
from stepkeep.operations.people import interventions
from stepkeep.operations.pipeline.plans import plan_for
from stepkeep.operations.runs.projected import describe_run_as
from stepkeep.sinks.event import OutgoingEvent
from stepkeep.sinks.interface import PUBLIC, SinkContext
from stepkeep.worker.chores.relay import Relay

EXAMPLES = Path(__file__).parents[2] / "examples"
MANDATORY = {
    "workflow_started": {"workflowName", "trigger", "domainsInvolved"},
    "workflow_step_completed": {"workflowName", "stepName", "agent", "durationMs", "correlationId"},
    "workflow_completed": {"workflowName", "totalDurationMs", "stepsCompleted", "costAccumulated"},
}


async def events_of(bench: Bench, run: str) -> list[OutgoingEvent]:
    record = await bench.store.read_run(TENANT, run)
    assert record is not None
    return await dialect_events(bench.transactor, record, await plan_for(bench.transactor, record.run))


async def test_the_telemetry_of_000_has_its_mandatory_payloads(database_url: str) -> None:
    async with on(database_url) as bench:
        definition = load_file(EXAMPLES / "ioa_content_review.yaml")
        run = await bench.start(definition, correlation_id="c-1")
        early = await events_of(bench, run)
        await bench.work_off()
        found = await events_of(bench, run)
        assert found[: len(early)] == early, "an event is the same whenever it is made"
        by_name = {event.type.partition(".")[2]: event for event in found}
        for name in set(MANDATORY) & set(by_name):
            assert MANDATORY[name] <= set(by_name[name].payload), name
        assert "workflow_started" in by_name
        assert {event.envelope()["correlationid"] for event in found} == {"c-1"}
        assert len({event.id for event in found}) == len(found)


async def test_the_domain_events_of_003_are_cloud_events_with_run_and_action(database_url: str) -> None:
    async with on(database_url) as bench:
        run = await bench.start(load_file(EXAMPLES / "action.yaml"))
        await bench.work_off()
        found = await events_of(bench, run)
        types = [event.type for event in found]
        assert types[:2] == ["PlanGenerated", "RunStarted"]
        assert "ActionDispatched" in types
        acted = next(event for event in found if event.type == "ActionDispatched")
        envelope = acted.envelope()
        assert (envelope["runid"], envelope["specversion"]) == (run, "1.0")
        assert envelope["actionid"] == acted.payload["actionId"]
        assert {"tenantid", "correlationid"} <= set(envelope)


POLICY = (
    PolicyRule(name="big", then=PolicyEffect.HOLD, when="input.amount > 100", reason="large", steps=("s00001",)),
    PolicyRule(name="odd", then=PolicyEffect.DENY, when="input.amount == 13", reason="unlucky", steps=("s00002",)),
)


async def test_what_policies_say_and_what_evidence_is_recorded_are_domain_events_of_003(database_url: str) -> None:
    async with on(database_url) as bench:
        definition = replace(chain("audited", 3), dialect="action", policy=POLICY, about={"workspaceId": "ws-1"})
        run = await bench.start(definition, b'{"amount": 13}')
        await bench.work_off()
        found = await events_of(bench, run)
        said = [event.payload for event in found if event.type == "PolicyEvaluated"]
        assert {one["decision"] for one in said if one["actionId"] == "s00002"} == {"Deny"}
        [denied] = [one for one in said if one["actionId"] == "s00002"]
        assert (denied["ruleId"], denied["rationale"], denied["workspaceId"]) == ("odd", "unlucky", "ws-1")
        assert {one["decision"] for one in said if one["actionId"] == "s00001"} == {"Allow"}
        shown = await describe_run_as(bench.transactor, run, "action", tenant=TENANT)
        recorded = [event.payload for event in found if event.type == "EvidenceRecorded"]
        assert [one["evidenceId"] for one in recorded] == [one["evidenceId"] for one in shown["evidence"]]
        assert [one["hashSha256"] for one in recorded] == [one["hashSha256"] for one in shown["evidence"]]
        assert {one["runId"] for one in recorded} == {run}
        places = [(event.seq, event.number) for event in found]
        assert len(set(places)) == len(places)


async def test_changes_and_violations_of_duties_are_domain_events_of_003(database_url: str) -> None:
    """Companions 003: ApprovalChangesRequested, SodViolationDetected; a violation is evidence, too."""

    async with on(database_url) as bench:
        gates = chain("signed", 2)
        terms = Approval(quorum=2, excluded=("requester",))
        steps = (replace(gates.steps[0], hold=terms), *gates.steps[1:])
        definition = replace(gates, steps=steps, dialect="action", about={"workspaceId": "ws-1"})
        run = await bench.start(definition)
        who = Caller(TENANT, "bea")
        await interventions.request_changes(bench.transactor, run, None, "name the supplier", None, who)
        for _ in range(2):
            with pytest.raises(NotAllowed):
                await bench.approve(run, by=ACTOR)
        await interventions.freeze(bench.transactor, run, "an audit", who)
        found = await events_of(bench, run)
        [asked] = [event for event in found if event.type == "ApprovalChangesRequested"]
        assert (asked.payload["decidedByUserId"], asked.payload["rationale"]) == ("bea", "name the supplier")
        [violated] = [event for event in found if event.type == "SodViolationDetected"]
        assert violated.payload["userId"] == ACTOR
        assert [one["kind"] for one in violated.payload["violations"]] == ["MakerCheckerViolation"]
        assert violated.envelope()["actionid"] == asked.payload["actionId"]
        shown = await describe_run_as(bench.transactor, run, "action", tenant=TENANT)
        assert [one["category"] for one in shown["evidence"]] == ["Approval", "PolicyViolation"]
        assert shown["controlState"] == "frozen"
        recorded = [event.payload["evidenceId"] for event in found if event.type == "EvidenceRecorded"]
        assert recorded == [one["evidenceId"] for one in shown["evidence"]]


class Posted(ThreadingHTTPServer):
    """Keeps what was posted."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Keep)
        self.got: list[tuple[dict[str, str], bytes]] = []


class Keep(BaseHTTPRequestHandler):
    server: Posted

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def posted() -> Iterator[Posted]:
    server = Posted()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join(10)


def template(tmp_path: Path, more: str, *names: str) -> Path:
    rows = "".join(f"  - {{position: {no}, name: {name}}}\n" for no, name in enumerate(names, 1))
    file = tmp_path / "template.yaml"
    file.write_text(f"template: default\n{more}steps:\n{rows}")
    return file


@pytest.mark.parametrize(("ending", "status"), [("approve", "SUCCEEDED"), ("cancel", "CANCELED"), ("reject", "FAILED")])
async def test_the_webhook_of_001_is_posted_signed_at_every_end(
    database_url: str, posted: Posted, tmp_path: Path, ending: str, status: str
) -> None:
    """Also after the last gate and after a cancellation, where the original sends none."""

    async with on(database_url) as bench:
        more = f"webhook_url: http://127.0.0.1:{posted.server_port}/done\nwebhook_secret: HOOK\n"
        run = await bench.start(load_file(template(tmp_path, more, "LLM", "APPROVAL")))
        await bench.work_off()
        await getattr(bench, ending)(run)

        async def secret(name: str) -> str:
            return f"value of {name}"

        reach = replace(PUBLIC, allow=AllowList.of(["127.0.0.1"]))
        relay = Relay(
            bench.transactor,
            TENANT,
            holder=lambda: "w",
            context=lambda name: SinkContext(name=name, tenant=TENANT, secret=secret, reach=reach),
        )
        for _ in range(2):
            await relay.turn()
            await relay.settle()
        await asyncio.wait_for(relay.stop(), 10)
        [(headers, body)] = posted.got
        said: dict[str, Any] = json.loads(body)
        assert set(said) == {"run_id", "status", "finished_at"}
        assert (said["run_id"], said["status"]) == (run, status)
        assert headers["x-signature"] == hmac.new(b"value of HOOK", body, hashlib.sha256).hexdigest()


def test_the_webhook_of_a_template_is_checked(tmp_path: Path) -> None:
    report = check_file(template(tmp_path, "webhook_url: ftp://x\n", "LLM"))
    assert any("webhook_url" in str(problem) for problem in report.problems)
    report = check_file(template(tmp_path, "webhook_secret: HOOK\n", "LLM"))
    assert any("which is missing" in str(problem) for problem in report.problems)
