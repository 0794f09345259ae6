"""The route matrix, generated from the OpenAPI document: every path and method with every wrong kind of caller."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2

from stepkeep.api.access import OPEN, scopes_of
from stepkeep.operations.access import Scope
from tests.api.document import Operation, complaints, example_body, operations, resolve
from tests.api.stage import GATED, HELLO, RIVAL, TENANT, Stage, on, told
from tests.suites import every

NOBODYS = "01a1e12c-57d6-75bf-abba-e99e88c4e41f"
MISSING = {
    "run_id": NOBODYS,
    "runId": NOBODYS,
    "approvalId": f"{NOBODYS}:sign",
    "step": "greet",
    "version": "1",
    "revision": "1",
    "key_id": "0" * 16,
    "worker_id": "nothing",
    "definition_id": "999999",
}
"""Values of parameters of paths that name nothing. A parameter that is not here has the value `nothing`."""

OWN_TENANT = {
    "PATCH /tenants/{name}",
    *(f"{one} /tenants/{{name}}/{what}" for one, what in (("GET", "quotas"), ("GET", "signing"), ("PUT", "signing"))),
}
"""Its 403 names no tenant but the key's own: a key changes no other, whether there is one or not."""
MAKES = "PUT "
"""What does not exist is made."""


class Matrix:
    def __init__(self, stage: Stage, document: dict[str, Any]) -> None:
        self.stage, self.document = stage, document
        self.operations = list(operations(document))

    def address(self, operation: Operation, values: dict[str, str]) -> str:
        path = operation.path
        for name in re.findall(r"{(\w+)}", path):
            path = path.replace(f"{{{name}}}", values.get(name, "nothing"))
        needed = [one for one in operation.parameters if one["in"] == "query" and one["required"]]
        query = "&".join(f"{one['name']}=nothing" for one in needed)
        return f"{path}?{query}" if query else path

    async def send(
        self, client: httpx2.AsyncClient, operation: Operation, values: dict[str, str], **options: Any
    ) -> httpx2.Response:
        if operation.has_body and "content" not in options:
            body = example_body(self.document, operation)
            if isinstance(body, str):
                options |= {"content": body.encode(), "headers": {"Content-Type": "application/yaml"}}
            else:
                options["json"] = body
        options["headers"] = {**options.get("headers", {}), "X-Request-Id": "matrix"}
        answer = await client.request(operation.method.upper(), self.address(operation, values), **options)
        assert answer.status_code < 500, (operation.route, answer.text)
        media = answer.headers.get("content-type", "").partition(";")[0]
        found = (
            complaints(self.document, operation, answer.status_code, media, answer.json())
            if media.endswith("json")
            else []
        )
        assert found == []
        return answer


async def refuse_wrong_callers(stage: Stage, nth: int = 1) -> None:
    async with stage.client() as client:
        matrix = Matrix(stage, (await client.get("/openapi.json")).json())
    guarded = [one for one in matrix.operations if one.row != OPEN]
    assert len(guarded) > 55
    expired = await stage.key("read", expires_at=datetime.now(UTC) + timedelta(days=1))
    revoked = await stage.key("read", expires_in="2d")
    async with stage.host() as host:
        await host.keys.revoke(revoked.split("_")[1])
    stage.engine.store.clock_offset = 86_400 * 1_000_000
    for operation in guarded[::nth]:
        for key in (None, expired, revoked):
            async with stage.client(key) as client:
                told(await matrix.send(client, operation, MISSING), 401, "unauthenticated")
        needed = scopes_of(operation.row)
        if not needed:
            continue
        others = [scope.value for scope in Scope if scope not in needed]
        async with stage.client(await stage.key(*others)) as client:
            refused = told(await matrix.send(client, operation, MISSING), 403, "not_allowed")
            assert refused["rule"] == "scope"


@every(3)
async def test_every_route_refuses_every_wrong_caller(database_url: str, nth: int) -> None:
    async with on(database_url) as stage:
        await refuse_wrong_callers(stage, nth)


async def tell_nothing_apart(stage: Stage) -> None:
    theirs = await furnish(stage)
    await intrude(stage, theirs, await stage.key(tenant=RIVAL, owner="eve"))
    # Nothing of what the rival tried has changed anything.
    async with stage.host() as host:
        run = (await host.show(theirs["run_id"]))["run"]
        assert (run["state"], run["quarantined"], run["journal"]["seq"]) == ("blocked", None, 1)


async def intrude(stage: Stage, theirs: dict[str, str], key: str) -> None:
    """Ask for everything of another tenant with this key, which has nothing itself."""
    async with stage.client(key) as client:
        matrix = Matrix(stage, (await client.get("/openapi.json")).json())
        seen = 0
        for operation in matrix.operations:
            if "{" not in operation.path or operation.route.startswith(MAKES):
                continue
            foreign = await matrix.send(client, operation, theirs)
            missing = await matrix.send(client, operation, MISSING)
            if operation.route in OWN_TENANT:
                assert foreign.status_code == missing.status_code == 403
                continue
            told(foreign, 404, "not_found")
            assert foreign.content == missing.content, operation.route
            assert foreign.headers == missing.headers, operation.route
            seen += 1
        assert seen > 30
        for path, name in (
            ("/runs", "runs"),
            ("/runs?text=hello", "runs"),
            ("/approvals", "approvals"),
            ("/workflows", "definitions"),
            ("/schemas", "schemas"),
            ("/policies", "policies"),
            ("/quarantine?history=true", "quarantined"),
            ("/workers?live=false", "workers"),
            ("/delegations", "delegations"),
            ("/tenants", "tenants"),
            ("/sinks", "sinks"),
            ("/outbox", "deliveries"),
            ("/outbox/history", "actions"),
            ("/triggers", "triggers"),
            ("/hooks", "hooks"),
            ("/mailbox", "messages"),
            ("/network", "allow"),
            ("/pauses", "pauses"),
            ("/slots", "slots"),
            ("/resources", "resources"),
            ("/jobs", "jobs"),
        ):
            assert (await client.get(path)).json()[name] == [], path
        assert {one["owner"] for one in (await client.get("/api-keys")).json()["keys"]} == {"eve"}
        assert [one["name"] for one in (await client.get("/users")).json()["users"]] == ["eve"]
        assert TENANT not in (await client.get("/history")).text


async def test_what_is_another_tenants_is_not_told_from_what_is_not_there(database_url: str) -> None:
    async with on(database_url) as stage:
        await tell_nothing_apart(stage)


async def refuse_the_unknown(stage: Stage, nth: int = 1) -> None:
    async with stage.client(await stage.key()) as client:
        matrix = Matrix(stage, (await client.get("/openapi.json")).json())
        for operation in matrix.operations[::nth]:
            path = matrix.address(operation, MISSING)
            extra = f"{path}{'&' if '?' in path else '?'}colour=red"
            told(await client.request(operation.method.upper(), extra), 400, "invalid_input")
            if not operation.takes_json:
                continue
            for body in (b"{", b'{"colour": "red"}', b"[]", b'{"by": 7}'):
                answer = await matrix.send(
                    client, operation, MISSING, content=body, headers={"Content-Type": "application/json"}
                )
                told(answer, 400, "invalid_input")
            answer = await matrix.send(
                client, operation, MISSING, content=b"{}", headers={"Content-Type": "text/plain"}
            )
            told(answer, 415, "unsupported_media_type")


@every(3)
async def test_every_route_refuses_what_it_does_not_know(database_url: str, nth: int) -> None:
    async with on(database_url) as stage:
        await refuse_the_unknown(stage, nth)


async def furnish(stage: Stage) -> dict[str, str]:
    """One of everything, of another tenant."""
    async with stage.host() as host:
        await host.publish(HELLO)
        await host.publish(GATED)
        run = (await host.start("gated")).run_id
        await host.publish_schema("order", {"type": "object"})
        await host.publish_policy({"policy": "p", "rules": [{"name": "r", "then": "allow"}]})
        await host.users.create("ann")
        key = await host.keys.create("ann", scopes=["read", "work"])
        await host.sinks.add("ann", "host")
        await host.triggers.add("ann", "hello", every="1h")
        await host.hooks.add({"hook": "ann", "scheme": "github", "secrets": ["HOOK"], "start": {"workflow": "hello"}})
        await host.send(None, "paid", key="k-1", message_id="m-1")
        await host.network.allow("search.internal")
        await host.pauses.pause_queue("")
        await host.pauses.pause_workflow("gated")
        await host.slots.set(1000)
        job = await host.jobs.start("cancel", runs=[run])
    async with stage.client(key["secret"]) as client:
        worker = (await client.post("/work/workers", json={"app": "w", "instance": "0" * 8})).json()["worker"]["id"]
    return {
        "run_id": run,
        "step": "sign",
        "name": "ann",
        "version": "1",
        "ref": "order",
        "revision": "1",
        "key_id": key["key"]["id"],
        "business_key": "k-1",
        "job_id": job["job"],
        "workspaceId": TENANT,
        "runId": run,
        "approvalId": f"{run}:sign",
        "worker_id": worker,
        "definition_id": "1",
    }


def integers(document: dict[str, Any], schema: dict[str, Any], example: Any) -> Iterator[tuple[list[Any], int | None]]:
    """The places of integers in a body like this example, each with the largest one that is documented."""
    for one in schema.get("anyOf", [schema]):
        found = resolve(document, one)
        if found.get("type") == "integer" and "const" not in found and "enum" not in found:
            most = found.get("maximum", found.get("exclusiveMaximum"))
            yield [], None if most is None else int(most)
        for name, part in found.get("properties", {}).items():
            inner = example.get(name) if isinstance(example, dict) else None
            yield from (([name, *place], most) for place, most in integers(document, part, inner))
        if "items" in found and isinstance(example, list) and example:
            yield from (([0, *place], most) for place, most in integers(document, found["items"], example[0]))


async def test_the_largest_number_of_every_field_is_kept_or_refused_in_our_own_words(database_url: str) -> None:
    """A number that is valid by the document and too large for a column would be refused in the words of the store."""

    async with on(database_url) as stage:
        there = await furnish(stage)
        async with stage.client(await stage.key()) as client:
            matrix, tried = Matrix(stage, (await client.get("/openapi.json")).json()), 0
            for operation in matrix.operations:
                for one in operation.parameters:
                    for _, most in integers(matrix.document, one["schema"], None):
                        assert most is not None, (operation.route, one["name"])
                        values = there | ({one["name"]: str(most)} if one["in"] == "path" else {})
                        address = matrix.address(operation, values)
                        if one["in"] == "query":
                            address = f"{operation.path}?{one['name']}={most}"
                            for name in re.findall(r"{(\w+)}", operation.path):
                                address = address.replace(f"{{{name}}}", there.get(name, "nothing"))
                        if operation.method == "get" and not address.partition("?")[0].endswith(
                            ("/stream", "/notices")
                        ):
                            check_words(operation, await client.get(address))
                            tried += 1
                if not operation.takes_json:
                    continue
                schema = operation.about["requestBody"]["content"]["application/json"].get("schema", {})
                example = example_body(matrix.document, operation)
                for place, most in integers(matrix.document, schema, example):
                    assert most is not None, (operation.route, place)
                    body = copy.deepcopy(example)
                    at = body
                    for part in place[:-1]:
                        at = at[part] if isinstance(at, list) else at.setdefault(part, {})
                    at[place[-1]] = most
                    answer = await client.request(operation.method.upper(), matrix.address(operation, there), json=body)
                    check_words(operation, answer)
                    tried += 1
            assert tried > 40


def check_words(operation: Operation, answer: httpx2.Response) -> None:
    assert answer.status_code < 500, (operation.route, answer.text)
    if answer.status_code >= 400:
        assert not re.search(r"\b(int2|int4|int8|integer|bigint|smallint|out of range|overflow)\b", answer.text), (
            operation.route,
            answer.text,
        )
