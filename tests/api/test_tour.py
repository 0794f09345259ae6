"""Every route works, and answers with what the OpenAPI document says."""

from __future__ import annotations

import io
import re
import zipfile
from typing import Any

import httpx2

import stepkeep as sk
from stepkeep.definition.python.calls import digest_of
from stepkeep.definition.python.registry import HandlerSpec
from tests.api.document import Operation, complaints, operations
from tests.api.outside import BODY, EMITTING, SECRETS, TO_MESSAGE, add_emitter, let_die, signed
from tests.api.stage import Stage, on, told

HELLO = """
workflow: hello
timeout: 1h
steps:
  - {name: greet, uses: api.greet, timeout: 5s, with: {name: "${{ input.name }}"}}
"""
GATED = "workflow: gated\ntimeout: 1h\nsteps: [{name: sign, approval: {deadline: 1h}}]\n"
WAITING = "workflow: waiting\ntimeout: 1h\nsteps: [{name: payment, wait: {event: paid, deadline: 1h}}]\n"
LEVELS = """
workflow: levels
timeout: 1h
steps:
  - name: sign
    approval: {deadline: 1h, on_deadline: escalate, escalate: [{approvers: [bob], deadline: 1h}]}
"""
LONE = "workflow: lone\ntimeout: 1h\nsteps: [{name: sign, approval: {roles: [law], deadline: 1h}}]\n"
MANUAL = """
workflow: manual
timeout: 1h
steps:
  - {name: by-hand, uses: api.token, timeout: 5s, completion: {mode: manual, deadline: 1h}}
"""
HELD = """
workflow: held
timeout: 1h
steps:
  - {name: fails, uses: api.fails, timeout: 5s, retry: {max_attempts: 1}, on_exhausted: hold}
"""
TEMPLATE = {"template": "default", "steps": [{"name": "api.greet", "position": 1}, {"name": "APPROVAL", "position": 2}]}


class Tour:
    """A client that holds every answer against the document, and notes which operations it has seen succeed."""

    def __init__(self, client: httpx2.AsyncClient, document: dict[str, Any]) -> None:
        self.client, self.document = client, document
        self.left = {one.route: one for one in operations(document)}
        self._known = [(one, re.compile(_pattern(one.path))) for one in self.left.values()]

    def _operation(self, method: str, path: str) -> Operation:
        """The route of an address. The longest path wins, because names of steps may hold slashes."""
        fitting = [one for one, pattern in self._known if one.method == method and pattern.fullmatch(path)]
        return max(fitting, key=lambda one: len(one.path))

    async def __call__(self, method: str, path: str, body: Any = None, status: int = 200, **options: Any) -> Any:
        if isinstance(body, str):
            options |= {"content": body.encode(), "headers": {"Content-Type": "application/yaml"}}
        elif body is not None:
            options["json"] = body
        answer = await self.client.request(method, path, **options)
        assert answer.status_code == status, (method, path, answer.text)
        operation = self._operation(method.lower(), path.partition("?")[0])
        media = answer.headers["content-type"].partition(";")[0]
        value = answer.json() if media.endswith("json") else answer.content
        assert complaints(self.document, operation, status, media, value) == []
        self.left.pop(operation.route, None)
        return value


def _pattern(path: str) -> str:
    return re.sub(
        r"\{(\w+)\}", lambda found: ".+" if found[1] in ("step", "name", "ref", "business_key") else "[^/]+", path
    )


async def test_every_route_does_its_work_and_answers_as_documented(database_url: str) -> None:
    tokens: list[str] = []

    def token(ctx: sk.Context) -> None:
        tokens.append(str(ctx.completion_token))

    def fails() -> None:
        raise OSError("no")

    async with on(database_url) as stage:
        for name, function in (("api.token", token), ("api.fails", fails)):
            stage.engine.registry.register(HandlerSpec(name=name, function=function))
        add_emitter(stage.engine)
        stage.engine.policies["secrets"] = sk.Secrets(values=SECRETS)
        # The worker of tenant `default` is that of the service's own engine.
        key = await stage.key(tenant="default")
        async with stage.client(key) as client:
            tour = Tour(client, (await client.get("/openapi.json")).json())
            for path in ("/healthz", "/readyz", "/version"):
                await tour("GET", path)
            await tour("GET", "/openapi.json")
            assert b"runs_total" in await tour("GET", "/metrics")
            await _definitions(tour)
            await stage.engine.start_worker(concurrency=4)
            finished = await _runs(tour)
            await _records(tour, finished)
            await _people(tour, tokens, stage)
            await _administration(tour)
            await _seed_001(tour)
            await _messages_and_hooks(tour)
            await _triggers(tour)
            await _sinks(tour, stage)
            await _jobs(tour)
            worker = await _remote_workers(tour)
            await _session(tour, await stage.key())
            code = stage.app.service.links.make(await stage.key())
            assert (await tour("POST", "/session/link", {"code": code}, 201))["principal"] == "ann"
            # A stream of a tenant has no end of its own.
            stage.app.service.stopping.set()
            assert b"event: begin" in await tour("GET", "/stream")
            async with stage.client(key) as tour.client:
                assert b"event: notice" in await tour("GET", f"/work/workers/{worker}/notices")
                assert (await tour("DELETE", f"/work/workers/{worker}"))["worker"]["state"] == "shutdown"
            for route in ("GET /oidc/login", "GET /oidc/callback"):
                del tour.left[route]  # they need a provider: test_oidc
            assert sorted(tour.left) == []


async def _definitions(tour: Tour) -> None:
    for text in (HELLO, GATED, WAITING, MANUAL, HELD):
        await tour("POST", "/workflows", text, 201)
    again = await tour("POST", "/workflows", HELLO, 200)
    assert again["definition"]["workflow"] == "hello"
    template = await tour("POST", "/workflows", TEMPLATE, 201)
    assert template["definition"]["dialect"] == "run"
    other = await tour.client.post(
        "/workflows", content=HELLO.replace("5s", "6s"), headers={"Content-Type": "text/yaml"}
    )
    told(other, 409, "conflict")
    bad = await tour.client.post("/workflows", content="workflow: x\nsteps: []", headers={"Content-Type": "text/yaml"})
    assert told(bad, 422, "definition")["problems"][0]["line"] == 2
    assert (await tour("POST", "/workflows/check", "workflow: x\nsteps: [{nam: a}]"))["ok"] is False
    assert (await tour("POST", "/workflows/check", HELLO))["ok"] is True
    assert len((await tour("GET", "/workflows"))["definitions"]) == 6
    first = await tour("GET", "/workflows?limit=4")
    rest = await tour("GET", f"/workflows?limit=4&cursor={first['next']}")
    assert (len(rest["definitions"]), rest["next"]) == (2, None)
    assert (await tour("GET", "/workflows/hello"))["document"]["name"] == "hello"
    await tour("GET", "/workflows/hello/versions/1")
    withdrawn = await tour("POST", "/workflows/hello/versions/1/withdraw", {"reason": "it greets twice"})
    assert (withdrawn["state"], withdrawn["reason"]) == ("withdrawn", "it greets twice")
    assert (await tour("POST", "/workflows/hello/versions/1/restore"))["state"] == "published"
    await tour("GET", "/workflows/hello/simulation")
    assert (await tour("GET", "/workflows/hello/unserved"))["unserved"]
    told(await tour.client.get("/workflows/hello/versions/2"), 404, "not_found")


async def _runs(tour: Tour) -> str:
    body = {"workflow": "hello", "input": {"name": "Ada"}, "labels": {"team": "a"}, "business_key": "k-1"}
    made = await tour("POST", "/runs", body, 201, headers={"Idempotency-Key": "one"})
    again = await tour("POST", "/runs", body, 200, headers={"Idempotency-Key": "one"})
    assert (again["run_id"], again["created"]) == (made["run_id"], False)
    other = await tour.client.post("/runs", json={**body, "input": {}}, headers={"Idempotency-Key": "one"})
    told(other, 422, "key_reused")
    assert other.json()["earlier"] == {"run_id": made["run_id"], "differs": ["input"]}
    run: str = made["run_id"]
    result = await tour("GET", f"/runs/{run}/result?wait=30")
    assert (result["finished"], result["output"]) == (True, "Hello, Ada")
    idle = (await tour("POST", "/runs", {"workflow": "hello", "input": {"name": "Bob"}, "start_now": False}, 201))[
        "run_id"
    ]
    await tour("POST", f"/runs/{idle}/start")
    assert (await tour("GET", f"/runs/{idle}/result?wait=30"))["output"] == "Hello, Bob"
    rerun = await tour("POST", f"/runs/{run}/rerun", {"input": {"name": "Cy"}}, 201, headers={"Idempotency-Key": "two"})
    same = await tour("POST", f"/runs/{run}/rerun", {"input": {"name": "Cy"}}, 200, headers={"Idempotency-Key": "two"})
    assert same["run_id"] == rerun["run_id"]
    assert (await tour("GET", f"/runs/{rerun['run_id']}/result?wait=30"))["output"] == "Hello, Cy"
    listed = await tour("GET", "/runs?limit=2")
    assert len(listed["runs"]) == 2
    rest = await tour("GET", f"/runs?limit=2&cursor={listed['next']}")
    assert [one["id"] for one in rest["runs"]] == [run]
    assert [one["id"] for one in (await tour("GET", "/runs?text=ada&label=team%3Da"))["runs"]] == [run]
    assert [one["id"] for one in (await tour("GET", "/runs?business_key=k-1&until=2000-01-01T00:00Z"))["runs"]] == []
    await tour("GET", "/statistics")
    assert "errors" in await tour("GET", "/errors")
    assert (await tour("GET", "/runs?as=ioa"))["runs"][0]["state"]
    assert (await tour("GET", f"/runs/{run}"))["run"]["labels"] == {"team": "a"}
    preview = await tour("POST", f"/runs/{idle}/continuation-preview", {"how": "fork", "start": "greet"})
    assert preview["runs_again"] == ["greet"]
    await tour("POST", f"/runs/{idle}/retry", None, 409)
    looked = await tour("POST", f"/runs/{idle}/migration-preview", {"to": 1})
    assert looked["allowed"] is False
    await tour("POST", f"/runs/{idle}/migrate", {"to": 1, "reason": "newer"}, 409)
    assert (await tour("POST", "/migrations/hello/preview", {"to": 1}))["examined"] == 0
    assert (await tour("POST", "/migrations/hello", {"to": 1}))["runs"] == 0
    body = {"start": "greet", "input": {"name": "Dee"}}
    fork = await tour("POST", f"/runs/{idle}/fork", body, 201, headers={"Idempotency-Key": "three"})
    assert (await tour("GET", f"/runs/{fork['run_id']}/result?wait=30"))["output"] == "Hello, Dee"
    from_step = await tour("POST", f"/runs/{idle}/rerun-from", {"start": "greet"}, 201)
    assert (await tour("GET", f"/runs/{from_step['run_id']}/result?wait=30"))["state"] == "succeeded"
    return run


async def _records(tour: Tour, run: str) -> None:
    assert (await tour("GET", f"/runs/{run}/steps"))["steps"][0]["name"] == "greet"
    for dialect in ("ioa", "run", "linear", "action", "workstream"):
        await tour("GET", f"/runs/{run}?as={dialect}")
        assert len((await tour("GET", f"/runs/{run}/steps?as={dialect}"))["steps"]) == 1
        assert (await tour("GET", f"/runs/{run}/journal?as={dialect}"))["entries"]
    assert (await tour("GET", f"/runs/{run}/steps/greet"))["step"]["state"] == "succeeded"
    assert len((await tour("GET", f"/runs/{run}/steps/greet/attempts"))["attempts"]) == 1
    journal = await tour("GET", f"/runs/{run}/journal?raw=true")
    seqs = [one["seq"] for one in journal["entries"]]
    assert seqs == list(range(1, len(seqs) + 1))
    paged = await tour("GET", f"/runs/{run}/journal?after=1&limit=1&raw=true")
    assert paged["entries"] == journal["entries"][1:2]
    lines = (await tour("GET", f"/runs/{run}/log")).splitlines()
    assert b"journal_definition" in lines[0]
    assert (await tour("GET", f"/runs/{run}/cost"))["cost"] == {}
    assert (await tour("GET", f"/runs/{run}/past?seq=1"))["run"]["state"] == "queued"
    assert (await tour("GET", f"/runs/{run}/past?time=2100-01-01T00:00:00Z"))["run"]["state"] == "succeeded"
    assert (await tour("GET", f"/runs/{run}/compare?other={run}"))["same"] is True
    assert (await tour("GET", "/workflows/hello/compare?live=true"))["live"]["examined"] == 0
    assert (await tour("GET", "/workflows/hello/simulation?version=1"))["steps"] == ["greet"]
    assert (await tour("GET", f"/runs/{run}/explain"))["causes"]
    assert (await tour("GET", f"/explain?what={run}"))["state"] == "succeeded"
    assert (await tour("GET", f"/runs/{run}/certificate"))["ok"] is True
    with zipfile.ZipFile(io.BytesIO(await tour("GET", f"/runs/{run}/evidence"))) as pack:
        assert "manifest.json" in pack.namelist()
    assert (await tour("GET", f"/runs/{run}/policy"))["ok"] is True
    assert b"event: end" in await tour("GET", f"/runs/{run}/stream")
    assert (await tour("GET", f"/runs/{run}/streams"))["streams"] == []
    assert (await tour("GET", f"/runs/{run}/streams/tokens/pieces"))["over"] is True
    assert b"event: end" in await tour("GET", f"/runs/{run}/streams/*")
    assert (await tour("GET", "/status"))["status"]["workers"]
    assert len((await tour("GET", "/workers"))["workers"]) == 1


async def _people(tour: Tour, tokens: list[str], stage: Stage) -> None:
    async def blocked(workflow: str) -> str:
        run: str = (await tour("POST", "/runs", {"workflow": workflow}, 201))["run_id"]
        assert (await tour("GET", f"/runs/{run}/result?wait=30&until_blocked=true"))["state"] == "blocked"
        return run

    gate = await blocked("gated")
    asked = (await tour("GET", "/approvals?mine=true"))["approvals"]
    assert [(one["run_id"], one["may_decide"]) for one in asked] == [(gate, True)]
    changes = {"comment": "name the supplier"}
    assert (await tour("POST", f"/runs/{gate}/request-changes", changes))["decision"] == "changes_requested"
    assert (await tour("POST", f"/runs/{gate}/request-changes", changes))["repeated"] is True
    assert (await tour("POST", f"/runs/{gate}/notes", {"note": "asked again", "step": "sign"}))["step"] == "sign"
    refused = await tour.client.post(f"/runs/{gate}/escalate", json={"reason": "ann is away"})
    told(refused, 409, "conflict")
    await tour("POST", "/workflows", LEVELS, 201)
    assert (await tour("POST", f"/runs/{await blocked('levels')}/escalate", {"reason": "ann is away"}))["level"] == 1
    await tour("POST", "/workflows", LONE, 201)
    lone = await stage.engine.start("lone")
    await tour("GET", f"/runs/{lone.run_id}/result?wait=30&until_blocked=true")
    failed = {"step": "sign", "fail": True, "reason": "law has left"}
    assert (await tour("POST", f"/runs/{lone.run_id}/reassign", failed))["decision"] == "rejected"
    assert (await tour("POST", f"/runs/{gate}/freeze", {"reason": "an audit"}))["state"] == "paused"
    told(await tour.client.post(f"/runs/{gate}/freeze", json={"reason": "an audit"}), 409, "conflict")
    await tour("POST", f"/runs/{gate}/resume")
    assert (await tour("POST", f"/runs/{gate}/approve", {"comment": "fine"}))["repeated"] is False
    assert (await tour("POST", f"/runs/{gate}/approve", {"step": "sign", "comment": "fine"}))["repeated"] is True
    late = await tour.client.post(f"/runs/{gate}/reject", json={"step": "sign"})
    assert told(late, 409, "conflict")["winner"]["by"] == "ann"
    await tour("POST", f"/runs/{await blocked('gated')}/reject")
    cancelled = await blocked("gated")
    assert (await tour("GET", f"/runs/{cancelled}/rollback"))["ends"] == "cancelled"
    assert (await tour("POST", f"/runs/{cancelled}/pause", {"reason": "closed"}))["state"] == "paused"
    assert (await tour("POST", f"/runs/{cancelled}/resume"))["state"] == "blocked"
    await tour("POST", f"/runs/{cancelled}/cancel", {"reason": "twice"})
    assert (await tour("POST", f"/runs/{cancelled}/cancel"))["repeated"] is True
    waiting = await blocked("waiting")
    await tour("POST", f"/runs/{waiting}/messages", {"name": "paid", "payload": {"amount": 3}, "id": "m-1"})
    assert (await tour("GET", f"/runs/{waiting}/result?wait=30"))["state"] == "succeeded"
    early = {"name": "paid", "business_key": "order-7", "payload": {"amount": 3}, "id": "m-7"}
    await tour("POST", "/messages", early)
    assert (await tour("POST", "/messages", early))["repeated"] is True
    assert "order-7" in str(await tour("GET", "/mailbox?business_key=order-7"))
    turn = {"conversation": "ada", "items": [{"key": "turn", "value": {"text": "Hello"}}]}
    assert await tour("POST", "/conversations/items", turn) == {"ordinals": [0]}
    read = await tour("POST", "/conversations/items/read", {"conversation": "ada", "prefix": "tu", "newest": True})
    assert [one["value"] for one in read["contents"]] == [{"text": "Hello"}]
    assert [one["name"] for one in (await tour("GET", "/conversations"))["conversations"]] == ["ada"]
    first = {"conversation": "ada", "place": {"key": "turn", "ordinal": 0}}
    assert await tour("POST", "/conversations/items/remove", first) == {"removed": 1}
    assert await tour("POST", "/conversations/prune", {"before": "2020-01-01T00:00:00Z"}) == {"deleted": []}
    assert await tour("DELETE", "/conversations/ada") == {"deleted": ["ada"]}
    keyed = {"workflow": "waiting", "business_key": "order-7"}
    paid = (await tour("POST", "/runs", keyed, 201))["run_id"]
    assert (await tour("GET", f"/runs/{paid}/result?wait=30"))["state"] == "succeeded"
    nowhere = await tour.client.post("/messages", json={"name": "paid", "correlation_id": "nobodys"})
    told(nowhere, 404, "not_found")
    unknown = await tour.client.post("/messages", json={**early, "start": "/etc/passwd.yaml"})
    told(unknown, 400, "invalid_input")
    manual = await blocked("manual")
    wrong = await tour.client.post(f"/runs/{manual}/steps/by-hand/complete", json={"token": "wrong"})
    told(wrong, 409, "wrong_token")
    new = await tour("POST", f"/runs/{manual}/steps/by-hand/token", {"reason": "lost"})
    assert new["token"] != tokens[0]
    await tour("POST", f"/runs/{manual}/steps/by-hand/complete", {"token": new["token"], "output": 7})
    assert (await tour("GET", f"/runs/{manual}/result?wait=30"))["output"] == 7
    signalled = await blocked("manual")
    signal = {
        "schemaVersion": 1,
        "runId": signalled,
        "actionId": "by-hand",
        "completionToken": tokens[-1],
        "outcome": "Succeeded",
        "actorUserId": "zoe",
        "completedAtIso": "2026-01-31T09:30:00Z",
        "evidenceRefs": ["e-1"],
    }
    elsewhere = await tour.client.post(f"/runs/{manual}/steps/by-hand/complete", json=signal)
    told(elsewhere, 400, "invalid_input")
    done = await tour("POST", f"/runs/{signalled}/steps/by-hand/complete", signal)
    assert (done["by"], done["claim"]["actorUserId"]) == ("ann", "zoe")
    assert (await tour("POST", f"/runs/{signalled}/steps/by-hand/complete", signal))["repeated"] is True
    held = await blocked("held")
    await tour("POST", f"/runs/{held}/steps/fails/decide", {"choice": "fail", "reason": "hopeless"})
    aside = await blocked("gated")
    await tour("POST", f"/runs/{aside}/quarantine", {"reason": "odd"})
    told(await tour.client.post(f"/runs/{aside}/approve"), 409, "quarantined")
    assert [one["run"] for one in (await tour("GET", "/quarantine"))["quarantined"]] == [aside]
    await tour("POST", f"/runs/{aside}/release", {"reason": "understood"})


async def _session(tour: Tour, key: str) -> None:
    opened = await tour("POST", "/session", {"key": key}, 201)
    assert (await tour("GET", "/session"))["csrf"] is None, "a key in the header comes first"
    del tour.client.headers["Authorization"]
    assert await tour("GET", "/session") == opened
    assert (await tour("DELETE", "/session", headers={"X-CSRF-Token": opened["csrf"]})) == {"ended": True}
    tour.client.headers["Authorization"] = f"Bearer {key}"


async def _seed_001(tour: Tour) -> None:
    run = (await tour("POST", "/as/run/runs", {"template_name": "default"}, 201))["run_id"]
    assert (await tour("GET", f"/runs/{run}/result?wait=30&until_blocked=true"))["state"] == "blocked"
    await tour("GET", f"/as/run/runs/{run}")
    await tour("GET", f"/as/run/runs/{run}/steps")
    await tour("GET", f"/as/run/runs/{run}/cost")
    await tour("POST", f"/as/run/runs/{run}/approve")
    assert b"RUN_APPROVED" in await tour("GET", f"/as/run/runs/{run}/events")
    other = (await tour("POST", "/as/run/runs", status=201))["run_id"]
    await tour("POST", f"/as/run/runs/{other}/cancel")


async def _administration(tour: Tour) -> None:
    await tour("PUT", "/schemas/shop/order-v1", {"document": {"type": "object"}})
    other = await tour.client.put("/schemas/shop/order-v1", json={"document": {"type": "array"}})
    told(other, 409, "conflict")
    assert (await tour("GET", "/schemas"))["schemas"][0]["ref"] == "shop/order-v1"
    assert (await tour("GET", "/schemas/shop/order-v1"))["schema"]["document"]["type"] == "object"
    await tour("POST", "/policies", {"policy": {"policy": "p", "rules": [{"name": "r", "then": "allow"}]}}, 201)
    assert (await tour("POST", "/policies/off", status=201))["revision"] == 2
    assert len((await tour("GET", "/policies"))["policies"]) == 2
    await tour("GET", "/policies/1")
    await tour("POST", "/tenants", {"name": "default"}, 201)
    await tour("PATCH", "/tenants/default", {"vouching": "allowed"})
    assert (await tour("GET", "/tenants/default/quotas"))["quotas"]["max_concurrent_runs"] is None
    assert (await tour("PUT", "/tenants/default/signing", {"secrets": ["B", "A"]}))["secrets"] == ["A", "B"]
    assert (await tour("GET", "/tenants/default/signing"))["secrets"] == ["A", "B"]
    assert (await tour("GET", "/tenants"))["tenants"][0]["name"] == "default"
    await tour("POST", "/users", {"name": "bob"}, 201)
    await tour("POST", "/users/bob/grant", {"role": "finance", "valid_to": "2100-01-01T00:00:00Z"})
    assert (await tour("GET", "/users/bob"))["user"]["roles"] == ["finance"]
    await tour("POST", "/users/bob/revoke", {"role": "finance"})
    await tour("POST", "/delegations", {"delegator": "ann", "to": "bob", "open_ended": True}, 201)
    assert len((await tour("GET", "/delegations"))["delegations"]) == 1
    await tour("POST", "/delegations/end", {"delegator": "ann", "to": "bob"})
    made = await tour("POST", "/api-keys", {"owner": "bob", "scopes": ["read"], "expires_in": "90d"}, 201)
    rotated = await tour("POST", f"/api-keys/{made['key']['id']}/rotate", status=201)
    assert (await tour("DELETE", f"/api-keys/{rotated['key']['id']}"))["key"]["state"] == "revoked"
    gone = await tour.client.get("/runs", headers={"Authorization": f"Bearer {rotated['secret']}"})
    told(gone, 401, "unauthenticated")
    assert rotated["secret"] not in (await tour("GET", "/api-keys", status=200)).__str__()
    await tour("POST", "/users/bob/disable")
    await tour("POST", "/users/bob/enable")
    assert [one["name"] for one in (await tour("GET", "/users"))["users"]] == ["ann", "bob"]
    assert (await tour("GET", "/history?limit=3"))["next"] == "3"
    noted = (await tour("GET", "/audit?target=bob&operation=user_disabled"))["audit"]
    assert [(one["actor"], one["outcome"]) for one in noted] == [("ann", "done")]


async def _messages_and_hooks(tour: Tour) -> None:
    await tour("POST", "/messages", {"name": "paid", "business_key": "o/9", "id": "m-9"})
    assert await tour("DELETE", "/mailbox/o/9?message_id=m-9") == {"key": "o/9", "dropped": ["m-9"]}
    told(await tour.client.delete("/mailbox/o/9"), 404, "not_found")
    assert (await tour("POST", "/hooks", {"hook": TO_MESSAGE}))["hook"]["hook"] == "payments"
    assert [one["hook"] for one in (await tour("GET", "/hooks"))["hooks"]] == ["payments"]
    recorded = {"headers": signed(), "body": BODY.decode()}
    assert (await tour("POST", "/hooks/payments/test", recorded))["result"] == "would send"
    run = (await tour("POST", "/runs", {"workflow": "waiting", "business_key": "o-7"}, 201))["run_id"]
    for _ in range(2):
        assert await tour("POST", "/hooks/payments", status=200, content=BODY, headers=signed()) == {"result": "sent"}
    assert (await tour("GET", f"/runs/{run}/result?wait=30"))["state"] == "succeeded"
    assert await tour("DELETE", "/hooks/payments") == {"removed": "payments"}
    told(await tour.client.post("/hooks/payments", content=BODY, headers=signed()), 404, "not_found")


async def _triggers(tour: Tour) -> None:
    nightly = {"name": "shop/nightly", "workflow": "hello", "trigger": {"schedule": "0 3 * * *"}}
    assert (await tour("POST", "/triggers", nightly))["state"] == "active"
    told(await tour.client.post("/triggers", json={**nightly, "workflow": "none"}), 400, "invalid_input")
    told(await tour.client.post("/triggers", json={**nightly, "trigger": {"by": "eve"}}), 400, "invalid_input")
    on_paid = {"name": "paid", "workflow": "hello", "trigger": {"event": "order.paid", "with": {"name": "Eve"}}}
    await tour("POST", "/triggers", on_paid)
    first = await tour("GET", "/triggers?limit=1")
    rest = await tour("GET", f"/triggers?cursor={first['next']}")
    assert [one["trigger"] for one in (*first["triggers"], *rest["triggers"])] == ["paid", "shop/nightly"]
    moments = await tour("GET", "/triggers/shop/nightly/next?limit=2&after=2026-01-01T00:00:00Z")
    assert [one["moment"] for one in moments["next"]] == ["2026-01-01T03:00:00Z", "2026-01-02T03:00:00Z"]
    assert (await tour("POST", "/triggers/shop/nightly/pause"))["state"] == "paused"
    told(await tour.client.post("/triggers/shop/nightly/pause"), 409, "conflict")
    assert (await tour("POST", "/triggers/shop/nightly/resume"))["state"] == "active"
    fired = [await tour("POST", "/triggers/shop/nightly/fire", {"key": "again-1"}) for _ in range(2)]
    assert fired[0]["run_id"] == fired[1]["run_id"] is not None
    within = {"since": "2026-01-01T00:00:00Z", "until": "2026-01-03T00:00:00Z"}
    looked = await tour("POST", "/triggers/shop/nightly/backfills", {**within, "dry_run": True})
    assert (looked["dry_run"], looked["moments"]) == (True, 2)
    await tour("POST", "/triggers/shop/nightly/pause")
    job = await tour("POST", "/triggers/shop/nightly/backfills", within)
    shown = await tour("GET", "/triggers/shop/nightly")
    assert [one["backfill"] for one in shown["backfills"]] == [job["backfill"]]
    stopped = await tour.client.post(f"/triggers/shop/nightly/backfills/{job['backfill']}/stop")
    # The worker may have carried it out meanwhile.
    assert stopped.status_code in (200, 409)
    again = await tour("POST", "/triggers/shop/nightly/backfills", {**within, "since": "1990-01-01T00:00:00Z"})
    await tour("POST", f"/triggers/shop/nightly/backfills/{again['backfill']}/stop")
    paid = [await tour("POST", "/events", {"event": "order.paid", "id": "e-1"}) for _ in range(2)]
    assert paid[0]["firings"][0]["run_id"] == paid[1]["firings"][0]["run_id"] is not None
    assert (await tour("DELETE", "/triggers/shop/nightly"))["state"] == "removed"
    await tour("DELETE", "/triggers/paid")


async def _sinks(tour: Tour, stage: Stage) -> None:
    made = await tour("POST", "/sinks", {"name": "orders", "kind": "host", "on": ["order.*"]}, 201)
    assert (made["kind"], made["created_by"]) == ("host", "ann")
    told(await tour.client.post("/sinks", json={"name": "orders", "kind": "host"}), 409, "conflict")
    written = {"name": "file", "kind": "jsonl", "options": {"path": "/tmp/x"}}
    assert told(await tour.client.post("/sinks", json=written), 403, "not_allowed")["rule"] == "operator_only"
    assert (await tour("PUT", "/sinks/orders", {"kind": "host", "on": ["order.paid"]}))["on"] == ["order.paid"]
    await tour("POST", "/workflows", EMITTING, 201)
    run = (await tour("POST", "/runs", {"workflow": "emitting"}, 201))["run_id"]
    assert (await tour("GET", f"/runs/{run}/result?wait=30"))["state"] == "succeeded"
    await stage.engine.stop_workers()
    told(await tour.client.post("/outbox/redrive", json={"sink": "orders", "reason": "none"}), 404, "not_found")
    event = await let_die(stage.engine, "orders")
    assert [one["run"] for one in (await tour("GET", "/outbox?state=dead&sink=orders"))["deliveries"]] == [run]
    shown = await tour("GET", f"/runs/{run}/outbox/orders")
    assert [(one["id"], one["state"]) for one in shown["events"]] == [(event, "dead")]
    assert {one["sink"]: one["dead"] for one in (await tour("GET", "/outbox/status"))["sinks"]}["orders"] == 1
    told(await tour.client.delete("/sinks/orders"), 409, "conflict")
    await tour("POST", "/outbox/redrive", {"sink": "orders", "reason": "the receiver is back"})
    assert await let_die(stage.engine, "orders") == event
    await tour("POST", f"/runs/{run}/outbox/orders/drop", {"event": event, "reason": "known"})
    actions = [one["action"] for one in (await tour("GET", "/outbox/history"))["actions"]]
    assert actions[:2] == ["dropped", "redriven"]
    webhook = {"kind": "webhook", "options": {"url": "https://127.0.0.1:1/in", "secrets": ["HOOK"]}}
    await tour("PUT", "/sinks/inside", webhook)
    tested = await tour("POST", "/sinks/inside/test")
    assert (tested["delivered"], tested["error"] is None) == (False, False)
    assert [one["name"] for one in (await tour("GET", "/sinks?limit=1"))["sinks"]] == ["inside"]
    assert (await tour("DELETE", "/sinks/orders?discard=true&reason=over"))["removed"] == "orders"
    assert (await tour("GET", "/network"))["allow"] == []
    limited = await tour("POST", "/slots", {"most": 1000})
    assert [(one["scope"], one["most"]) for one in limited["slots"]] == [("tenant", 1000)]
    assert (await tour("GET", "/slots")) == limited
    assert (await tour("POST", "/slots/clear"))["slots"] == []
    told(await tour.client.post("/slots", json={"most": 3, "workflow": "nowhere"}), 404, "not_found")
    set_ = await tour("POST", "/limits/set", {"name": "mail", "rate": "100/1m", "burst": 20, "key": "acme"})
    assert [(one["key"], one["rate"]) for one in set_["of_keys"]] == [("acme", "100/1m")]
    assert [one["name"] for one in (await tour("GET", "/limits"))["limits"]] == ["mail"]
    assert await tour("GET", "/limits/mail") == set_
    assert (await tour("POST", "/limits/clear", {"name": "mail", "key": "acme"}))["limits"] == []
    sized = await tour("POST", "/resources", {"resource": "cpu", "most": 8})
    assert [(one["resource"], one["most"], one["holders"]) for one in sized["resources"]] == [("cpu", 8, [])]
    assert (await tour("GET", "/resources")) == sized
    assert (await tour("POST", "/resources/clear", {"resource": "cpu"}))["resources"] == []
    closed = await tour("POST", "/pauses/queue", {"queue": "", "reason": "closed"})
    assert [(one["scope"], one["queue"], one["reason"]) for one in closed["pauses"]] == [("queue", "", "closed")]
    assert (await tour("GET", "/pauses")) == closed
    assert (await tour("POST", "/pauses/queue/resume", {"queue": ""}))["pauses"] == []
    assert [one["scope"] for one in (await tour("POST", "/pauses/tenant", {"reason": "an audit"}))["pauses"]] == [
        "tenant"
    ]
    assert (await tour("POST", "/pauses/tenant/resume"))["pauses"] == []
    told(await tour.client.post("/pauses/queue", json={"queue": "nowhere"}), 404, "not_found")
    held = await tour("POST", "/pauses/workflow", {"workflow": "gated", "reason": "a bad release"})
    assert [(one["scope"], one["workflow"], one["queue"]) for one in held["pauses"]] == [("workflow", "gated", None)]
    assert (await tour("POST", "/pauses/workflow/resume", {"workflow": "gated"}))["pauses"] == []
    told(await tour.client.post("/pauses/workflow", json={"workflow": "nowhere"}), 404, "not_found")


async def _remote_workers(tour: Tour) -> str:
    """The workers of the engine have stopped: this one is remote."""
    found = await tour("GET", "/work/queues")
    assert "api.greet" in [one["name"] for one in found["queues"]]
    assert (await tour("GET", "/work/network"))["allow"] == []
    body = {"app": "far", "instance": "0123456789abcdef", "capacity": 2}
    worker: str = (await tour("POST", "/work/workers", body, 201))["worker"]["id"]
    assert (await tour("POST", "/work/workers", body))["worker"]["id"] == worker
    at = f"/work/workers/{worker}"
    assert (await tour("POST", f"{at}/heartbeat", {"busy": True}))["worker"]["state"] == "busy"
    run = (await tour("POST", "/runs", {"workflow": "hello", "input": {"name": "Far"}}, 201))["run_id"]
    [claim] = (await tour("POST", f"{at}/claim", {"handlers": ["api.greet"], "run_id": run}))["claims"]
    assert (claim["inputs"], claim["step"]) == ({"name": "Far"}, "greet")
    stored = (await tour("GET", f"/work/definitions/{claim['definition_id']}"))["definition"]
    assert stored["name"] == "hello"
    name = {field: claim[field] for field in ("run_id", "no", "fence")}
    [read] = (await tour("POST", f"{at}/inputs", {"runs": [{"run_id": run, "details": True, "outputs": [0]}]}))["runs"]
    assert (read["details"]["input"], read["outputs"][0]["absent"]) == ({"name": "Far"}, True)
    kept = (await tour("POST", f"{at}/renew", {"leases": [{**name, "lease_us": 60_000_000}]}))["renewed"]
    assert kept == [{**name, "run_state": "running"}]
    kept = await tour("POST", f"{at}/checkpoint", {**name, "name": "charge", "value": {"id": 7}})
    assert kept["reply"]["state"] == "running"
    assert (await tour("POST", f"{at}/checkpoints", name)) == {"checkpoints": {"charge": {"id": 7}}, "following": None}
    chunks = {"name": "tokens", "chunks": ["Hel", "lo"]}
    assert (await tour("POST", f"{at}/streams", {**name, "streams": [chunks]}))["written"] == 2
    rest = [{"name": "tokens", "start": 2, "chunks": ["!"]}]
    done = {"reports": [{**name, "outcome": {"kind": "completed", "output": "Hello"}, "streams": rest}]}
    assert (await tour("POST", f"{at}/report", done))["replies"][0]["state"] == "succeeded"
    shown = {"evidence": [{**name, "evidence": {"log": ["INFO far away"]}}]}
    assert (await tour("POST", f"{at}/evidence", shown))["kept"] == 1
    assert (await tour("GET", f"/runs/{run}/result"))["output"] == "Hello"
    pieces = (await tour("GET", f"/runs/{run}/streams/tokens/pieces"))["pieces"]
    assert [one["chunks"] for one in pieces] == [["Hel", "lo"], ["!"]]
    assert b"event: piece" in await tour("GET", f"/runs/{run}/streams/tokens")
    flow = {"workflow": "far", "steps": [{"name": "all", "uses": "far.all", "flow": {}}]}
    await tour("POST", "/workflows", flow, 201)
    await tour("POST", "/runs", {"workflow": "far"}, 201)
    [claim] = (await tour("POST", f"{at}/claim", {"handlers": ["far.all"], "wait_seconds": 10}))["claims"]
    name = {field: claim[field] for field in ("run_id", "no", "fence")}
    sleep = {"kind": "sleep", "name": "sleep", "digest": digest_of(b"{}"), "arguments": {}, "step": {"sleep": "1h"}}
    awaits = {"reports": [{**name, "outcome": {"kind": "suspended", "calls": [sleep, {**sleep, "name": "again"}]}}]}
    assert (await tour("POST", f"{at}/calls", name)) == {"calls": [], "until": 0, "following": None}
    assert (await tour("POST", f"{at}/report", awaits))["replies"][0]["state"] == "awaiting_children"
    assert (await tour("POST", f"{at}/drain"))["worker"]["state"] == "draining"
    return worker


async def _jobs(tour: Tour) -> None:
    run = (await tour("POST", "/runs", {"workflow": "gated", "labels": {"bulk": "yes"}}, 201))["run_id"]
    body = {"action": "cancel", "where": {"labels": {"bulk": "yes"}}, "reason": "twice"}
    looked = await tour("POST", "/runs/bulk", {**body, "dry_run": True})
    assert (looked["runs"], looked["first"]) == (1, [run])
    made = await tour("POST", "/runs/bulk", body, 201, headers={"Idempotency-Key": "bulk"})
    again = await tour("POST", "/runs/bulk", body, 200, headers={"Idempotency-Key": "bulk"})
    assert again["job"] == made["job"]
    for wrong in ({"action": "cancel"}, {**body, "runs": [run]}, {"action": "rerun", "runs": ["no"]}):
        told(await tour.client.post("/runs/bulk", json=wrong), 400, "invalid_input")
    assert (await tour("GET", "/jobs?limit=1"))["jobs"][0]["job"] == made["job"]
    assert (await tour("GET", f"/jobs/{made['job']}"))["waiting"] == 1
    assert [one["run_id"] for one in (await tour("GET", f"/jobs/{made['job']}/runs"))["runs"]] == [run]
    assert (await tour("POST", f"/jobs/{made['job']}/stop"))["state"] == "stopped"
