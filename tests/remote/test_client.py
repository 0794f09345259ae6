"""A client has the words of the engine, and programs do the same through a service as with a database."""

from __future__ import annotations

import asyncio
import inspect
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.client import AsyncClient, Client
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.errors import Conflict, DefinitionError, InvalidInput, KeyReused, NotAllowed, NotFound, Unreachable
from stepkeep.operations.people.quotas import Quotas
from tests.service import TENANT, make_key, serving

OTHERWISE = {"publish", "start", "run", "send", "certify"}
"""They also take, or return, values of the client in place of plans."""


def public(kind: type) -> dict[str, Any]:
    return {name: value for name, value in inspect.getmembers(kind) if not name.startswith("_") and callable(value)}


def test_the_client_has_every_method_of_the_engine_with_its_signature() -> None:
    there, wanted_all = public(AsyncClient), public(AsyncEngine)
    assert wanted_all.keys() - there.keys() == {"worker"}, "add a row, or say why not"
    for name, method in wanted_all.items():
        if name not in there:
            continue
        wanted, found = inspect.signature(method).parameters, inspect.signature(there[name]).parameters
        assert list(found) == list(wanted), name
        if name not in OTHERWISE:
            assert [one.default for one in found.values()] == [one.default for one in wanted.values()], name
            assert [one.kind for one in found.values()] == [one.kind for one in wanted.values()], name


# -- the same program, embedded and against a service ------------------------------------------------------------------

ORDER = sk.Workflow("order")
ORDER.step("price", "client.double", inputs={"n": "${{ input.n }}"})
ORDER.approval("sign", after="price")
ORDER.step("ship", "client.double", inputs={"n": "${{ steps.price.output }}"}, after="sign")

WAITS = sk.Workflow("waits")
WAITS.wait("paid", "paid")


def handlers() -> Registry:
    registry = Registry()
    registry.register(HandlerSpec(name="client.double", function=lambda n: n * 2))
    return registry


def program(engine: sk.Engine) -> list[Any]:
    """What a program of a user does; its answers must not depend on where it runs."""
    said: list[Any] = []
    engine.publish(ORDER)
    engine.publish(WAITS)
    first = engine.start(ORDER, {"n": 3}, idempotency_key="o-1", labels={"team": "a"}, business_key="b-1")
    again = engine.start("order", {"n": 3}, idempotency_key="o-1", labels={"team": "a"}, business_key="b-1")
    said.append((first.created, again.created, first.run_id == again.run_id))
    with pytest.raises(KeyReused) as reused:
        engine.start("order", {"n": 4}, idempotency_key="o-1")
    assert reused.value.earlier == {"run_id": first.run_id, "differs": ["input", "business key", "labels"]}
    blocked = engine.wait(first.run_id, seconds=30, until_blocked=True)
    said.append((blocked.state, blocked.finished, [wait["for"] for wait in blocked.waiting_for]))
    said.append([one["step"] for one in engine.approvals()["approvals"]])
    said.append([cause["code"] for cause in engine.explain(first.run_id)["causes"]])
    approved = engine.approve(first.run_id, "sign", comment="fine")
    said.append(sorted(approved))
    with pytest.raises(Conflict) as late:
        engine.reject(first.run_id, "sign")
    said.append(late.value.winner is not None)
    done = engine.wait(first.run_id, seconds=30)
    said.append((done.state, done.output, str(done).partition(":")[2]))
    said.append(engine.show(first.run_id)["run"]["labels"])
    said.append(sorted(engine.show(first.run_id, step="ship")))
    waiting = engine.run(WAITS)
    said.append((waiting.state, [wait["event"] for wait in waiting.waiting_for]))
    engine.send(waiting.run_id, "paid", {"amount": 3}, message_id="m-1")
    said.append(engine.wait(waiting.run_id, seconds=30).state)
    other = engine.rerun(waiting.run_id)
    said.append(engine.cancel(other.run_id, reason="twice")["state"])
    said.append([one["workflow"] for one in engine.runs(workflow="waits")["runs"]])
    said.append(engine.runs(labels={"team": "a"})["total"])
    said.append([one["workflow"] for one in engine.definitions(name="order")["definitions"]])
    said.append(engine.certify(first.run_id).verdict)
    said.append(len(engine.log(first.run_id)) > 3)
    with pytest.raises(NotFound):
        engine.show("01a1e12c-57d6-75bf-abba-e99e88c4e41f")
    with pytest.raises(NotFound):
        engine.show("nonsense")
    engine.publish_schema("order/v1", {"type": "object"})
    said.append([one["ref"] for one in engine.schemas()["schemas"]])
    said.append(engine.schema("order/v1")["schema"]["document"])
    engine.publish_policy({"policy": "p", "rules": [{"name": "r", "then": "allow"}]})
    said.append((engine.show_policy().revision, len(engine.list_policies().policies)))
    engine.users.create("bea")
    engine.users.grant("bea", role="auditor", valid_to=datetime(2099, 1, 1, tzinfo=UTC))
    said.append(engine.users.show("bea").user.name)
    key = engine.keys.create("bea", scopes=["read"], expires_in="1d").key.id
    engine.keys.revoke(key)
    said.append([one["owner"] for one in engine.keys.list(owner="bea").keys])
    engine.send(None, "early", key="b-2", message_id="m-2")
    said.append([one["id"] for one in engine.mailbox.list("b-2")["messages"]])
    said.append(engine.compare_runs(waiting.run_id, other.run_id)["same"])
    said.append(engine.compare_versions("order", 1, 1)["same"])
    said.append(engine.show(first.run_id, at=1)["run"]["state"])
    said.append(engine.tenants.quotas(TENANT).quotas)
    said.append(engine.tenants.set_signing(TENANT, ["HOOK"]) == engine.tenants.signing(TENANT))
    said.append(engine.jobs.start("rerun", where={"workflow": "waits"}, dry_run=True)["runs"])
    job = engine.jobs.start("rerun", where={"workflow": "nothing"}, idempotency_key="j-1")
    repeated = engine.jobs.start("rerun", where={"workflow": "nothing"}, idempotency_key="j-1")
    said.append((job["created"], repeated["created"], job["job"] == repeated["job"]))
    said.append((engine.jobs.show(job["job"])["state"], engine.jobs.runs(job["job"])))
    said.append([(one["action"], one["runs"]) for one in engine.jobs.list(limit=1)["jobs"]])
    with pytest.raises(Conflict):
        engine.jobs.stop(job["job"])
    said.append(sorted(engine.audit.list(operation="approve", limit=1)))
    said.append(engine.status()["status"]["runs"])
    return said


@pytest.mark.parametrize("where", ["embedded", "service"])
def test_a_program_says_the_same_embedded_and_through_a_service(database_url: str, where: str) -> None:
    if where == "service":
        key = make_key(database_url, "ann")
        with serving(database_url, handlers()) as address, sk.open(address, key=key) as client:
            assert isinstance(client, Client)
            found = program(client)
    else:
        with sk.open(database_url, tenant=TENANT, actor="ann", registry=handlers()) as engine:
            engine.start_worker(concurrency=8)
            found = program(engine)
    assert found[:4] == [
        (True, False, True),
        ("blocked", False, ["approval"]),
        ["sign"],
        ["approval"],
    ], found
    assert found[5] is True
    assert found[6] == ("succeeded", 12, " 12")
    assert found[7:] == [
        {"team": "a"},
        ["run", "step"],
        ("blocked", ["paid"]),
        "succeeded",
        "cancelled",
        ["waits", "waits"],
        1,
        ["order"],
        "conforms",
        True,
        ["order/v1"],
        {"type": "object"},
        (1, 1),
        "bea",
        ["bea"],
        ["m-2"],
        False,
        True,
        "queued",
        dict.fromkeys(Quotas.__struct_fields__),
        True,
        1,
        (True, False, True),
        ("done", {"runs": [], "next": None}),
        [("rerun", 0)],
        ["audit", "chain", "next"],
        found[-1],
    ]


def test_refusals_of_the_service_are_the_errors_of_the_engine(tmp_path: Path, database_url: str) -> None:
    if not database_url.startswith("sqlite"):
        pytest.skip("errors do not depend on the store; the program above meets both")
    readers = make_key(database_url, "rob", "read")
    key = make_key(database_url, "ann")
    with serving(database_url, handlers()) as address:
        with sk.open(address, key=readers) as client:
            with pytest.raises(NotAllowed) as refused:
                client.start("order")
            assert refused.value.rule == "scope"
            with pytest.raises(InvalidInput, match="needs the database itself"):
                client.start_worker()
            with pytest.raises(InvalidInput, match="`serve` needs the database itself"):
                client.serve()
            with pytest.raises(InvalidInput, match="needs the database itself"):
                client.prune(archive=None, older_than="1d")
        with sk.open(address, key=key) as client:
            file = tmp_path / "wrong.yaml"
            file.write_text("workflow: wrong\nsteps: 7\n", encoding="utf-8")
            with pytest.raises(DefinitionError) as wrong:
                client.publish(file)
            assert wrong.value.problems
            with pytest.raises(InvalidInput, match="connection"):
                client.start("order", connection=object())
        with pytest.raises(NotAllowed) as unknown, sk.open(address, key=f"sk_{'0' * 16}_{'a' * 43}") as client:
            client.runs()
        assert unknown.value.rule == "key_invalid"
        with pytest.raises(InvalidInput, match="names the tenant"):
            sk.open(address, key=key, tenant="other")
    with pytest.raises(Unreachable), sk.open(address, key=key) as client:
        client.runs()


@contextmanager
def cutting(address: str, cuts: int) -> Iterator[tuple[str, list[int]]]:
    """A proxy that breaks the first connections in the middle of their answers."""
    host, port = address.removeprefix("http://").split(":")
    listener = socket.create_server(("127.0.0.1", 0))
    left, broken = [cuts], []

    def pump(source: socket.socket, target: socket.socket, most: int | None) -> None:
        passed = 0
        try:
            while part := source.recv(65536):
                passed += len(part)
                if most is not None and passed > most:
                    target.sendall(part[: len(part) // 2])
                    broken.append(passed)
                    break
                target.sendall(part)
        except OSError:
            broken.append(-1)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def accept() -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            far = socket.create_connection((host, int(port)))
            left[0] -= 1
            threading.Thread(target=pump, args=(near, far, None), daemon=True).start()
            threading.Thread(target=pump, args=(far, near, 900 if left[0] >= 0 else None), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", broken
    finally:
        listener.close()


async def test_a_stream_that_breaks_is_resumed_without_gaps_and_starts_are_not_doubled(database_url: str) -> None:
    key = make_key(database_url, "ann")

    async def act(address: str) -> None:
        async with AsyncClient(address, key=key) as direct:
            await direct.publish(ORDER)
            run = (await direct.start("order", {"n": 1})).run_id
            await direct.wait(run, until_blocked=True, seconds=30)
            await direct.approve(run)
            await direct.wait(run, seconds=30)
            last = (await direct.show(run))["run"]["journal"]["seq"]
            with cutting(address, 4) as (proxied, broken):
                client = AsyncClient(proxied, key=key)
                async with asyncio.timeout(60):
                    seen = [entry["seq"] async for entry in client.follow(run)]
                assert seen == list(range(1, last + 1))
                assert broken
                await client.close()
            with cutting(address, 2) as (proxied, broken):
                client = AsyncClient(proxied, key=key)
                before = (await direct.runs(workflow="order"))["total"]
                started = await client.start("order", {"n": 1}, labels={"pad": "x" * 900})
                assert started.created
                assert (await client.show(started.run_id))["run"]["id"] == started.run_id
                assert broken
                assert (await direct.runs(workflow="order"))["total"] == before + 1
                await client.close()

    with serving(database_url, handlers()) as address:
        await act(address)
