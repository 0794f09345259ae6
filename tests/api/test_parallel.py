"""Fifty parallel copies of a mutating request leave the same state as one."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import httpx2
import pytest

from stepkeep.api.access import ROUTES
from stepkeep.definition.python.registry import HandlerSpec
from stepkeep.worker.attempts.secrets import Secrets
from tests.api.outside import BODY, EMITTING, SECRETS, TO_MESSAGE, add_emitter, let_die, signed
from tests.api.stage import Stage, on
from tests.api.test_tour import GATED, HELD, HELLO, LONE, MANUAL, TEMPLATE, WAITING
from tests.databases import migrated_file
from tests.suites import in_proof

KEYED = {"Idempotency-Key": "once"}

FORMS: dict[str, tuple[str, dict[str, Any] | str | bytes | None]] = {
    "POST /runs": ("/runs", {"workflow": "gated", "input": {"name": "Ada"}}),
    "POST /runs/{run_id}/start": ("/runs/{idle}/start", None),
    "POST /runs/{run_id}/pause": ("/runs/{gated}/pause", {"reason": "closed"}),
    "POST /runs/{run_id}/resume": ("/runs/{gated}/resume", None),
    "POST /runs/{run_id}/cancel": ("/runs/{gated}/cancel", {"reason": "twice"}),
    "POST /runs/{run_id}/rerun": ("/runs/{ended}/rerun", {"input": {"name": "Cy"}}),
    "POST /runs/{run_id}/retry": ("/runs/{called_off}/retry", {}),
    "POST /runs/{run_id}/rerun-from": ("/runs/{ended}/rerun-from", {"start": "greet"}),
    "POST /runs/{run_id}/fork": ("/runs/{ended}/fork", {"start": "greet", "input": {"name": "Cy"}}),
    "POST /runs/{run_id}/approve": ("/runs/{gated}/approve", {"step": "sign"}),
    "POST /runs/{run_id}/reject": ("/runs/{gated}/reject", {"step": "sign"}),
    "POST /runs/{run_id}/request-changes": (
        "/runs/{gated}/request-changes",
        {"step": "sign", "comment": "name the supplier"},
    ),
    "POST /runs/{run_id}/reassign": (
        "/runs/{lone}/reassign",
        {"step": "sign", "fail": True, "reason": "law has left"},
    ),
    "POST /runs/{run_id}/messages": ("/runs/{waiting}/messages", {"name": "paid", "payload": 3, "id": "m-1"}),
    "POST /runs/{run_id}/quarantine": ("/runs/{gated}/quarantine", {"reason": "odd"}),
    "POST /runs/{run_id}/release": ("/runs/{aside}/release", {"reason": "understood"}),
    "POST /runs/{run_id}/steps/{step}/decide": ("/runs/{held}/steps/fails/decide", {"choice": "fail"}),
    "POST /runs/{run_id}/steps/{step}/complete": ("/runs/{manual}/steps/by-hand/complete", {"token": "{token}"}),
    "POST /messages": ("/messages", {"name": "paid", "business_key": "k-9", "id": "m-9"}),
    "POST /workflows": ("/workflows", HELLO.replace("hello", "new")),
    "PUT /schemas/{ref}": ("/schemas/order", {"document": {"type": "object"}}),
    "POST /tenants": ("/tenants", {"name": "default"}),
    "POST /users": ("/users", {"name": "bob"}),
    "POST /users/{name}/disable": ("/users/cyd/disable", None),
    "POST /users/{name}/enable": ("/users/eva/enable", None),
    "POST /users/{name}/grant": ("/users/cyd/grant", {"role": "finance"}),
    "POST /users/{name}/revoke": ("/users/cyd/revoke", {"role": "audit"}),
    "POST /delegations": ("/delegations", {"delegator": "ann", "to": "cyd", "open_ended": True}),
    "POST /delegations/end": ("/delegations/end", {"delegator": "dan", "to": "cyd"}),
    "DELETE /api-keys/{key_id}": ("/api-keys/{key}", None),
    "DELETE /mailbox/{business_key}": ("/mailbox/k-8", None),
    "POST /sinks": ("/sinks", {"name": "new", "kind": "host"}),
    "DELETE /sinks/{name}": ("/sinks/spare", None),
    "POST /outbox/redrive": ("/outbox/redrive", {"sink": "orders", "reason": "again"}),
    "POST /runs/{run_id}/outbox/{name}/drop": (
        "/runs/{emitting}/outbox/orders/drop",
        {"event": "{event}", "reason": "known"},
    ),
    "POST /slots": ("/slots", {"most": 1000}),
    "POST /limits/set": ("/limits/set", {"name": "api", "running": 1000}),
    "POST /limits/clear": ("/limits/clear", {"name": "api"}),
    "POST /slots/clear": ("/slots/clear", None),
    "POST /resources": ("/resources", {"resource": "cpu", "most": 8}),
    "POST /resources/clear": ("/resources/clear", {"resource": "cpu"}),
    "POST /pauses/queue": ("/pauses/queue", {"queue": "", "reason": "closed"}),
    "POST /pauses/queue/resume": ("/pauses/queue/resume", {"queue": ""}),
    "POST /pauses/tenant": ("/pauses/tenant", {"reason": "an audit"}),
    "POST /pauses/tenant/resume": ("/pauses/tenant/resume", None),
    "POST /pauses/workflow": ("/pauses/workflow", {"workflow": "gated", "reason": "closed"}),
    "POST /pauses/workflow/resume": ("/pauses/workflow/resume", {"workflow": "gated"}),
    "POST /runs/bulk": ("/runs/bulk", {"action": "cancel", "where": {"workflow": "gated"}}),
    "POST /jobs/{job_id}/stop": ("/jobs/{job}/stop", None),
    "POST /triggers": ("/triggers", {"name": "new", "workflow": "hello", "trigger": {"every": "1h"}}),
    "POST /workflows/{name}/versions/{version}/withdraw": ("/workflows/hello/versions/1/withdraw", {"reason": "bad"}),
    "POST /workflows/{name}/versions/{version}/restore": ("/workflows/gone/versions/1/restore", {}),
    "POST /triggers/{name}/pause": ("/triggers/daily/pause", None),
    "POST /triggers/{name}/resume": ("/triggers/paused/resume", None),
    "POST /triggers/{name}/fire": ("/triggers/daily/fire", {"key": "once"}),
    "POST /triggers/{name}/backfills/{backfill}/stop": ("/triggers/daily/backfills/{backfill}/stop", None),
    "DELETE /triggers/{name}": ("/triggers/daily", None),
    "POST /events": ("/events", {"event": "order.paid", "id": "e-1"}),
    "POST /hooks/{name}": ("/hooks/payments", BODY),
    "DELETE /hooks/{name}": ("/hooks/payments", None),
    "POST /work/workers": ("/work/workers", {"app": "w", "instance": "0123456789abcdef"}),
    "POST /work/workers/{worker_id}/drain": ("/work/workers/{worker}/drain", None),
    "DELETE /work/workers/{worker_id}": ("/work/workers/{worker}", None),
    "POST /work/workers/{worker_id}/claim": (
        "/work/workers/{worker}/claim",
        {"handlers": ["api.far"], "request_id": "once"},
    ),
    "POST /work/workers/{worker_id}/report": (
        "/work/workers/{worker}/report",
        {"reports": [{"run_id": "{far}", "no": 0, "fence": 1, "outcome": {"kind": "completed", "output": 7}}]},
    ),
    "POST /work/workers/{worker_id}/renew": (
        "/work/workers/{worker}/renew",
        {"leases": [{"run_id": "{far}", "no": 0, "fence": 1, "lease_us": 60_000_000}]},
    ),
    "POST /as/run/runs": ("/as/run/runs", {"template_name": "default"}),
    "POST /as/run/runs/{run_id}/approve": ("/as/run/runs/{gated}/approve", None),
    "POST /as/run/runs/{run_id}/cancel": ("/as/run/runs/{gated}/cancel", None),
}
"""Each mutating route, the address that is asked for, and its body."""

MADE_EACH_TIME = {
    "POST /conversations/items": "an item without a place is another one each time",
    "POST /conversations/items/read": "changes nothing",
    "POST /conversations/items/remove": "tests/store/test_contract_conversations.py removes one twice",
    "DELETE /conversations/{conversation}": "tests/store/test_contract_conversations.py deletes one twice",
    "POST /conversations/prune": "deletes what is left, each once",
    "POST /workflows/check": "changes nothing",
    "POST /runs/{run_id}/continuation-preview": "changes nothing",
    "POST /runs/{run_id}/migration-preview": "changes nothing",
    "POST /migrations/{workflow}/preview": "changes nothing",
    "POST /runs/{run_id}/migrate": "needs another version; tests/operations/test_migrations.py sends several at once",
    "POST /migrations/{workflow}": "migrates each run as the route of one run does",
    "POST /runs/{run_id}/notes": "each is a note of its own",
    "POST /runs/{run_id}/escalate": "each opens a level",
    "POST /runs/{run_id}/freeze": "a run that is paused already refuses it",
    "POST /sinks/{name}/test": "sends an event each time",
    "PUT /sinks/{name}": "each is on record",
    "POST /hooks": "each is on record",
    "POST /hooks/{name}/test": "changes nothing",
    "POST /triggers/{name}/backfills": "each is a job of its own; a moment fires once",
    "POST /session": "each is a session of its own",
    "POST /work/workers/{worker_id}/checkpoints": "changes nothing",
    "POST /work/workers/{worker_id}/heartbeat": "each is a sign of life",
    "POST /work/workers/{worker_id}/inputs": "changes nothing",
    "POST /work/workers/{worker_id}/evidence": "is no part of the record",
    "DELETE /session": "needs a session: test_sessions ends one in parallel",
    "PATCH /tenants/{name}": "each is on record",
    "PUT /tenants/{name}/signing": "each is on record",
    "POST /policies": "each is a revision of its own",
    "POST /policies/off": "each is a revision of its own",
    "POST /api-keys": "each is a key of its own, whose secret is shown once",
    "POST /api-keys/{key_id}/rotate": "each is a key of its own, whose secret is shown once",
    "POST /runs/{run_id}/steps/{step}/token": "each is a token of its own, and the last one counts",
}
"""Mutating routes whose copies are meant to differ."""

ELSEWHERE = ("/work/", "/session")
"""Routes of remote workers and of browsers, whose own tests repeat requests (tests/remote, test_sessions)."""

SHORT = (
    "POST /runs",
    "POST /runs/{run_id}/approve",
    "POST /runs/{run_id}/steps/{step}/complete",
    "POST /users/{name}/grant",
)


async def furnished(stage: Stage, client: httpx2.AsyncClient) -> dict[str, str]:
    """One of everything that the forms name."""
    tokens: list[str] = []

    def token(ctx: Any) -> None:
        tokens.append(str(ctx.completion_token))

    def fails() -> None:
        raise OSError("no")

    for name, function in (("api.token", token), ("api.fails", fails)):
        stage.engine.registry.register(HandlerSpec(name=name, function=function))
    add_emitter(stage.engine)
    for text in (HELLO, GATED, LONE, WAITING, MANUAL, HELD, EMITTING):
        await client.post("/workflows", content=text, headers={"Content-Type": "text/yaml"})
    await client.post("/workflows", json=TEMPLATE)
    await stage.engine.start_worker(concurrency=4)
    found: dict[str, str] = {}
    for name in ("gated", "aside", "waiting", "manual", "held"):
        workflow = "gated" if name == "aside" else name
        found[name] = (await client.post("/runs", json={"workflow": workflow})).json()["run_id"]
        waited = await client.get(f"/runs/{found[name]}/result?wait=30&until_blocked=true")
        assert waited.json()["state"] == "blocked", waited.text
    found["token"] = tokens[-1]
    found["lone"] = (await stage.engine.start("lone")).run_id
    await client.get(f"/runs/{found['lone']}/result?wait=30&until_blocked=true")
    await client.post(f"/runs/{found['aside']}/quarantine", json={"reason": "odd"})
    found["ended"] = (await client.post("/runs", json={"workflow": "hello", "input": {"name": "A"}})).json()["run_id"]
    assert (await client.get(f"/runs/{found['ended']}/result?wait=30")).json()["state"] == "succeeded"
    found["called_off"] = (await client.post("/runs", json={"workflow": "gated"})).json()["run_id"]
    assert (await client.post(f"/runs/{found['called_off']}/cancel", json={})).status_code == 200
    for name in ("orders", "spare"):
        await client.post("/sinks", json={"name": name, "kind": "host", "on": ["order.paid"]})
    found["emitting"] = (await client.post("/runs", json={"workflow": "emitting"})).json()["run_id"]
    assert (await client.get(f"/runs/{found['emitting']}/result?wait=30")).json()["state"] == "succeeded"
    await stage.engine.stop_workers()
    await _outside(stage, client, found)
    idle = {"workflow": "hello", "input": {"name": "A"}, "start_now": False}
    found["idle"] = (await client.post("/runs", json=idle)).json()["run_id"]
    for name in ("cyd", "dan", "eva"):
        assert (await client.post("/users", json={"name": name})).status_code == 201
    await client.post("/users/eva/disable")
    await client.post("/users/cyd/grant", json={"role": "audit"})
    await client.post("/delegations", json={"delegator": "dan", "to": "cyd", "open_ended": True})
    made = await client.post("/api-keys", json={"owner": "cyd", "scopes": ["read"]})
    found["key"] = made.json()["key"]["id"]
    await _far(client, found)
    return found


async def _outside(stage: Stage, client: httpx2.AsyncClient, found: dict[str, str]) -> None:
    """A dead event, triggers, a backfill, a hook and a kept message."""
    stage.engine.policies["secrets"] = Secrets(values=SECRETS)
    found["event"] = await let_die(stage.engine, "orders")
    [taken] = await stage.engine.outbox.take("spare")
    await stage.engine.outbox.ack(taken)
    for name, trigger in (
        ("daily", {"schedule": "@daily"}),
        ("paused", {"schedule": "@daily"}),
        ("on-paid", {"event": "order.paid", "with": {"name": "A"}}),
    ):
        answer = await client.post("/triggers", json={"name": name, "workflow": "hello", "trigger": trigger})
        assert answer.status_code == 200, answer.text
    await client.post("/triggers/paused/pause")
    gone = HELLO.replace("hello", "gone")
    assert (await client.post("/workflows", content=gone, headers={"Content-Type": "text/yaml"})).status_code == 201
    assert (await client.post("/workflows/gone/versions/1/withdraw", json={"reason": "bad"})).status_code == 200
    within = {"since": "2026-01-01T00:00:00Z", "until": "2026-01-03T00:00:00Z"}
    found["backfill"] = (await client.post("/triggers/daily/backfills", json=within)).json()["backfill"]
    assert (await client.post("/hooks", json={"hook": TO_MESSAGE})).status_code == 200
    named = {"action": "cancel", "runs": [found["gated"]]}
    found["job"] = (await client.post("/runs/bulk", json=named)).json()["job"]
    assert (await client.post("/messages", json={"name": "paid", "business_key": "k-8"})).status_code == 200


async def _far(client: httpx2.AsyncClient, found: dict[str, str]) -> None:
    """A remote worker that holds one step, while another is ready."""
    far = HELLO.replace("hello", "far").replace("api.greet", "api.far")
    assert (await client.post("/workflows", content=far, headers={"Content-Type": "text/yaml"})).status_code == 201
    made = await client.post("/work/workers", json={"app": "remote", "instance": "fedcba9876543210"})
    found["worker"] = made.json()["worker"]["id"]
    for name in ("far", "next"):
        body = {"workflow": "far", "input": {"name": "A"}}
        found[name] = (await client.post("/runs", json=body)).json()["run_id"]
        if name == "far":
            claimed = await client.post(
                f"/work/workers/{found['worker']}/claim", json={"handlers": ["api.far"], "run_id": found["far"]}
            )
            assert [one["fence"] for one in claimed.json()["claims"]] == [1]


async def state(client: httpx2.AsyncClient, runs: dict[str, str]) -> dict[str, Any]:
    """Everything that a request could have changed, without times and ids that are drawn."""
    listed = (await client.get("/runs?limit=200")).json()["runs"]
    people = (await client.get("/history?limit=200")).json()
    said: dict[str, Any] = {
        "runs": sorted(
            (one["workflow"], one["state"], one["journal"]["seq"], str(one["quarantined"] is None)) for one in listed
        ),
        "workflows": [
            (one["workflow"], one["withdrawn"] is None)
            for one in (await client.get("/workflows")).json()["definitions"]
        ],
        "schemas": [one["ref"] for one in (await client.get("/schemas")).json()["schemas"]],
        "history": [(one["event"], one["subject"]) for one in people["history"]],
        "keys": sorted((one["owner"], one["state"]) for one in (await client.get("/api-keys")).json()["keys"]),
    }
    outbox = (await client.get("/outbox")).json()["deliveries"]
    triggers = [(await client.get(f"/triggers/{name}")).json() for name in ("daily", "paused", "on-paid")]
    mailbox = (await client.get("/mailbox")).json()["messages"]
    said |= {
        "sinks": [one["name"] for one in (await client.get("/sinks")).json()["sinks"]],
        "outbox": [(one["sink"], one["state"]) for one in outbox],
        "actions": [(one["action"], one["sink"]) for one in (await client.get("/outbox/history")).json()["actions"]],
        "triggers": [
            one["trigger"] + one["state"] + str(len(one["firings"])) + "".join(job["state"] for job in one["backfills"])
            for one in triggers
            if "trigger" in one
        ],
        "jobs": [(one["action"], one["state"], one["done"]) for one in (await client.get("/jobs")).json()["jobs"]],
        "hooks": [one["hook"] for one in (await client.get("/hooks")).json()["hooks"]],
        "mailbox": [(one["key"], one["id"] == "m-9") for one in mailbox],
    }
    workers = (await client.get("/workers?live=false")).json()["workers"]
    said["workers"] = sorted((one["id"].partition(":")[0], one["state"]) for one in workers)
    for name in ("gated", "waiting", "manual", "held", "aside", "idle", "far", "next"):
        steps = (await client.get(f"/runs/{runs[name]}/steps")).json()["steps"]
        said[name] = [(one["name"], one["state"], (one["record"] or {}).get("by")) for one in steps]
    return said


def filled(value: Any, named: dict[str, str]) -> Any:
    """A body with the names of what was furnished."""
    if isinstance(value, dict):
        return {key: filled(inner, named) for key, inner in value.items()}
    if isinstance(value, list):
        return [filled(one, named) for one in value]
    return value.format(**named) if isinstance(value, str) else value


def test_every_mutating_route_has_a_form() -> None:
    mutating = {route for route in ROUTES if not route.startswith("GET ")}
    elsewhere = {route for route in mutating if route.partition(" ")[2].startswith(ELSEWHERE)}
    assert mutating - elsewhere == (set(FORMS) | set(MADE_EACH_TIME)) - elsewhere


@pytest.mark.parametrize("route", [one if one in SHORT else in_proof(one, name=one) for one in FORMS])
@pytest.mark.parametrize("database_url", ["sqlite", in_proof("postgres")], indirect=True)
async def test_fifty_copies_are_one(database_url: str, route: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path, body = FORMS[route]
    seen: list[dict[str, Any]] = []
    statuses: list[Counter[int]] = []

    async def act(stage: Stage, copies: int) -> None:
        async with stage.client(await stage.key(tenant="default")) as client:
            named = await furnished(stage, client)
            options: dict[str, Any] = {"headers": dict(KEYED)}
            if isinstance(body, bytes):
                options = {"content": body, "headers": signed(body=body)}
            elif isinstance(body, str):
                options |= {"content": body, "headers": {"Content-Type": "text/yaml"}}
            elif body is not None:
                options["json"] = filled(body, named)
            method = route.partition(" ")[0]
            asked = [client.request(method, path.format(**named), **options) for _ in range(copies)]
            answers = await asyncio.gather(*asked)
            statuses.append(Counter(one.status_code for one in answers))
            assert not [one.text for one in answers if one.status_code not in (200, 201, 404, 409)]
            seen.append(await state(client, named))

    alone = migrated_file(tmp_path_factory.mktemp("alone") / "alone.db")
    for url, copies in ((alone, 1), (database_url, 50)):
        async with on(url) as stage:
            await act(stage, copies)
    assert sum(statuses[0].values()) == 1
    assert max(statuses[0]) < 300
    # Two publications of the same version that overlap both find it new.
    assert statuses[1][201] <= 1 or route.endswith("/workflows")
    assert statuses[1][200] + statuses[1][201] >= 1
    assert seen[1] == seen[0]
