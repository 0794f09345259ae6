"""A worker over HTTP does what a worker with a database does: real service, real worker, both stores."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

import stepkeep as sk
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.kernel.errors import NotAllowed
from stepkeep.operations.remote.recorded_checkpoints import PAGE_CHECKPOINTS
from stepkeep.worker.loop import Worker
from stepkeep.worker.remote.start import remote_worker
from tests.api.stage import RIVAL, TENANT, Stage, on, told
from tests.workbench import eventually

CHAIN = sk.Workflow("chain")
CHAIN.step("one", "remote.double", inputs={"n": "${{ input.n }}"})
CHAIN.step("two", "remote.double", inputs={"n": "${{ steps.one.output }}"}, after="one")
CHAIN.step("three", "remote.told", after="two")

FLAKY = sk.Workflow("flaky")
FLAKY.step("once", "remote.flaky", retry=sk.Retry(max_attempts=3, initial="1ms"))


def registry(**more: Callable[..., Any]) -> Registry:
    made = Registry()

    def told_of(ctx: sk.Context) -> dict[str, Any]:
        return {"run": ctx.run_id, "two": ctx.outputs["two"], "input": ctx.input, "attempt": ctx.attempt}

    def flaky(ctx: sk.Context) -> int:
        if ctx.attempt == 1:
            raise ConnectionError("not yet")
        return ctx.attempt

    functions: dict[str, Callable[..., Any]] = {
        "remote.double": lambda n: n * 2,
        "remote.told": told_of,
        "remote.flaky": flaky,
        **{f"remote.{name}": function for name, function in more.items()},
    }
    for name, function in functions.items():
        made.register(HandlerSpec(name=name, function=function))
    return made


@asynccontextmanager
async def working(url: str, key: str, made: Registry, **options: Any) -> AsyncIterator[Worker]:
    """A remote worker that serves meanwhile."""
    async with remote_worker(url, key, made, **options) as worker:
        serving = asyncio.create_task(worker.serve())
        await worker.joined.wait()
        try:
            yield worker
        finally:
            worker.stop(grace=0)
            await serving


@asynccontextmanager
async def on_service(url: str) -> AsyncIterator[tuple[Stage, str, httpx2.AsyncClient]]:
    """Act on a real server on loopback."""
    async with on(url) as stage:
        await stage.publish(CHAIN, FLAKY)
        async with stage.serving(await stage.key()) as client:
            yield stage, str(client.base_url), client


async def ended(client: httpx2.AsyncClient, workflow: str, body: Any = None) -> dict[str, Any]:
    """A run that is started and awaited over HTTP."""
    made = await client.post("/runs", json={"workflow": workflow, "input": body})
    assert made.status_code == 201, made.text
    run_id = made.json()["run_id"]
    found: dict[str, Any] = (await client.get(f"/runs/{run_id}/result", params={"wait": 20})).json()
    return {**found, "run_id": run_id}


async def test_a_remote_worker_runs_steps_with_inputs_outputs_and_retries(database_url: str) -> None:
    async with on_service(database_url) as (stage, url, client):
        key = await stage.key("work", owner="bob")
        async with working(url, key, registry(), app="far") as worker:
            chain = await ended(client, "chain", {"n": 5})
            assert chain["state"] == "succeeded", chain
            assert chain["output"] == {"run": chain["run_id"], "two": 20, "input": {"n": 5}, "attempt": 1}
            flaky = await ended(client, "flaky")
            assert (flaky["state"], flaky["output"]) == ("succeeded", 2)
            step = (await client.get(f"/runs/{flaky['run_id']}/steps/once")).json()
            assert "not yet" in str(step)
            listed = (await client.get("/workers")).json()["workers"]
            assert [one["id"] for one in listed] == [worker.id]
            row = await stage.engine.store.find_worker(TENANT, worker.id or "")
            assert row is not None
            assert row.owner == "bob"
        after = (await client.get("/workers", params={"live": False})).json()["workers"]
        assert [one["state"] for one in after] == ["shutdown"]


class Plain:
    """A worker of another language: plain requests of the documented protocol."""

    def __init__(self, client: httpx2.AsyncClient, worker_id: str) -> None:
        self.client, self.id = client, worker_id

    @classmethod
    async def registered(cls, client: httpx2.AsyncClient, **more: Any) -> Plain:
        body = {"app": "plain", "instance": "0123456789abcdef", "capacity": 4, **more}
        answer = await client.post("/work/workers", json=body)
        assert answer.status_code in (200, 201), answer.text
        return cls(client, answer.json()["worker"]["id"])

    async def post(self, what: str, body: Any) -> httpx2.Response:
        return await self.client.post(f"/work/workers/{self.id}/{what}", json=body)

    async def claim(self, *handlers: str, **more: Any) -> list[dict[str, Any]]:
        answer = await self.post("claim", {"slots": 4, "handlers": handlers, **more})
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["claims"]
        return found

    async def report(self, held: dict[str, Any], outcome: dict[str, Any], **more: Any) -> dict[str, Any]:
        name = {field: held[field] for field in ("run_id", "no", "fence")}
        answer = await self.post("report", {"reports": [{**name, "outcome": outcome}], **more})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


async def start(client: httpx2.AsyncClient, workflow: str, body: Any = None, **more: Any) -> str:
    made = await client.post("/runs", json={"workflow": workflow, "input": body, **more})
    assert made.status_code == 201, made.text
    return str(made.json()["run_id"])


async def test_the_plain_protocol_gives_rendered_inputs_and_chains_claims(database_url: str) -> None:
    async with on_service(database_url) as (_stage, _url, client):
        plain = await Plain.registered(client)
        run = await start(client, "chain", {"n": 3})
        [one] = await plain.claim("remote.double", "remote.told", wait_seconds=5)
        assert (one["run_id"], one["step"], one["attempt"], one["handler"]) == (run, "one", 1, "remote.double")
        assert (one["inputs"], one["input"]) == ({"n": 3}, {"n": 3})
        wanted = {"slots": 2, "handlers": ["remote.double"]}
        answer = await plain.report(one, {"kind": "completed", "output": 6}, claim=wanted)
        assert answer["replies"] == [{"accepted": True, "repeated": False, "state": "succeeded"}]
        [two] = answer["claims"]
        assert (two["step"], two["inputs"]) == ("two", {"n": 6})
        await plain.report(two, {"kind": "failed", "error": "no answer", "category": "external", "delay_us": 1})
        [again] = await plain.claim("remote.double", wait_seconds=5)
        assert (again["step"], again["attempt"], again["fence"]) == ("two", 2, two["fence"] + 1)
        await plain.report(again, {"kind": "completed", "output": 12})
        [three] = await plain.claim("remote.told")
        await plain.report(three, {"kind": "completed", "output": None, "emit": [{"name": "done", "payload": 1}]})
        found = (await client.get(f"/runs/{run}/result", params={"wait": 5})).json()
        assert found["state"] == "succeeded"


async def test_a_remote_worker_is_busy_since_its_first_claim(database_url: str) -> None:
    """It says so with a heartbeat after the claim; the service knows the time of the claim."""

    async with on_service(database_url) as (stage, _url, client):
        plain, store = await Plain.registered(client), stage.engine.store
        run = await start(client, "chain", {"n": 3})
        await plain.claim("remote.double", wait_seconds=5)
        store.clock_offset += 1_000_000
        assert (await plain.post("heartbeat", {"busy": True})).json()["worker"]["state"] == "busy"
        claimed = [entry.at for entry in await store.read_journal(TENANT, run)][-1]
        assert [entry.at for entry in await store.read_worker_journal(TENANT, plain.id)][-1] == claimed
        assert (await plain.post("heartbeat", {"busy": False})).json()["worker"]["state"] == "idle"


async def test_a_late_or_doubled_report_is_fenced_and_a_repeated_request_is_answered_again(database_url: str) -> None:
    async with on_service(database_url) as (_stage, _url, client):
        plain = await Plain.registered(client)
        other = await Plain.registered(client, instance="fedcba9876543210")
        run = await start(client, "flaky")
        [claim] = await plain.claim("remote.flaky", request_id="c-1")
        assert await plain.claim("remote.flaky", request_id="c-1") == [claim]
        assert await plain.claim("remote.flaky", request_id="c-2") == []
        # Another worker of the same owner can neither renew nor report it, nor read its data.
        lease = {"run_id": run, "no": claim["no"], "fence": claim["fence"], "lease_us": 60_000_000}
        assert (await other.post("renew", {"leases": [lease]})).json() == {"renewed": []}
        assert (await other.report(claim, {"kind": "completed"}))["replies"][0]["code"] == "fenced"
        told(await other.post("inputs", {"runs": [{"run_id": run, "details": True}]}), 404, "not_found")
        kept = (await plain.post("renew", {"leases": [lease]})).json()["renewed"]
        assert [one["run_state"] for one in kept] == ["running"]
        done = {"kind": "completed", "output": 1}
        first = await plain.report(claim, done, request_id="r-1")
        assert first["replies"][0]["accepted"]
        assert await plain.report(claim, done, request_id="r-1") == first
        second = await plain.report(claim, done, request_id="r-2")
        assert second["replies"][0]["code"] == "fenced"
        assert "Traceback" not in str(second)
        assert (await plain.post("renew", {"leases": [lease]})).json() == {"renewed": []}
        told(await plain.post("inputs", {"runs": [{"run_id": run, "details": True}]}), 404, "not_found")


async def test_checkpoints_are_recorded_over_http_and_found_by_the_next_claim(database_url: str) -> None:
    """By a worker of this package and by one of the plain protocol; a late one is fenced."""
    called: list[int] = []

    def once(ctx: sk.Context) -> Any:
        found = ctx.once("size", lambda: called.append(1) or "x" * 9000)
        if ctx.attempt == 1:
            raise ConnectionError("not yet")
        return len(found)

    async with on_service(database_url) as (stage, url, client):
        worker = await Plain.registered(client)
        run_id = await start(client, "flaky")
        [held] = await worker.claim("remote.flaky")
        assert held["checkpoints"] == {}
        name = {field: held[field] for field in ("run_id", "no", "fence")}
        for changed, reply in (({}, (True, False)), ({}, (True, True)), ({"fence": 2}, (False, None))):
            answer = await worker.post("checkpoint", {**name, "name": "charge", "value": {"id": 7}, **changed})
            found = answer.json()["reply"]
            assert (found["accepted"], found.get("repeated")) == reply, found
        assert found["code"] == "fenced"
        refused = await worker.post("checkpoint", {**name, "name": "large", "value": "x" * 3_500_000})
        assert (refused.status_code, "3145728 are the limit" in refused.text) == (400, True)
        many = [*range(PAGE_CHECKPOINTS)]
        for place in many:
            await worker.post("checkpoint", {**name, "name": f"call {place}", "value": place})
        await worker.report(held, {"kind": "failed", "error": "later", "category": "transient", "delay_us": 0})
        [again] = await worker.claim("remote.flaky", wait_seconds=5)
        assert (again["run_id"], again["checkpoints"]) == (
            run_id, {"charge": {"id": 7}, **{f"call {place}": place for place in many[:-1]}}
        )  # fmt: skip
        name = {field: again[field] for field in ("run_id", "no", "fence")}
        rest = (await worker.post("checkpoints", {**name, **again["more_checkpoints"]})).json()
        assert rest == {"checkpoints": {f"call {many[-1]}": many[-1]}, "following": None}
        gone = await worker.post("checkpoints", {**name, "fence": 1})
        told(gone, 404, "not_found")
        await worker.report(again, {"kind": "completed", "output": 1})
        key = await stage.key("work", owner="bob")
        async with working(url, key, registry(flaky=once), app="far"):
            flaky = await ended(client, "flaky")
        assert (flaky["state"], flaky["output"], called) == ("succeeded", 9000, [1])


async def test_a_lease_that_ran_out_is_given_to_another_worker(database_url: str) -> None:
    async with on_service(database_url) as (stage, _url, client):
        plain = await Plain.registered(client)
        other = await Plain.registered(client, instance="fedcba9876543210")
        await start(client, "flaky")
        [claim] = await plain.claim("remote.flaky")
        stage.engine.store.clock_offset += 3600 * 1_000_000
        stage.app.service.work.swept_at.clear()
        [taken] = await other.claim("remote.flaky", wait_seconds=20)
        assert (taken["run_id"], taken["fence"]) == (claim["run_id"], claim["fence"] + 1)
        late = await plain.report(claim, {"kind": "completed", "output": "late"})
        assert late["replies"][0]["code"] == "fenced"
        assert (await other.report(taken, {"kind": "completed", "output": "taken"}))["replies"][0]["accepted"]
        found = (await client.get(f"/runs/{claim['run_id']}/result")).json()
        assert found["output"] == "taken"


async def test_a_worker_belongs_to_the_owner_of_its_key_and_to_its_tenant(database_url: str) -> None:
    async with on_service(database_url) as (stage, url, client):
        plain = await Plain.registered(client)
        await start(client, "flaky")
        for key in (await stage.key("work", owner="bob"), await stage.key("work", tenant=RIVAL, owner="eve")):
            async with httpx2.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {key}"}) as stranger:
                stolen = Plain(stranger, plain.id)
                told(await stolen.post("claim", {"handlers": ["remote.flaky"]}), 404, "not_found")
                told(await stolen.post("heartbeat", {}), 404, "not_found")
                told(await stranger.delete(f"/work/workers/{plain.id}"), 404, "not_found")
        rival = await stage.key("work", tenant=RIVAL, owner="eve")
        async with httpx2.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {rival}"}) as stranger:
            assert (await stranger.get("/work/queues")).json()["queues"] == []
            own = await Plain.registered(stranger)
            numbers = [one["number"] for one in (await client.get("/work/queues")).json()["queues"]]
            told(await own.post("claim", {"queues": numbers}), 400, "invalid_input")
            assert await own.claim("remote.flaky") == []
            definitions = (await client.get("/workflows")).json()["definitions"]
            assert definitions
            for number in range(1, 5):
                told(await stranger.get(f"/work/definitions/{number}"), 404, "not_found")


async def test_capabilities_need_a_role_of_the_owner_and_a_registration(database_url: str) -> None:
    async with on_service(database_url) as (stage, _url, client):
        drawn = sk.Workflow("drawn")
        drawn.step("draw", "remote.draw", capabilities=["gpu"])
        await stage.publish(drawn)
        body = {"app": "gpu", "instance": "abcdefabcdef0123", "capabilities": ["gpu"]}
        refused = told(await client.post("/work/workers", json=body), 403, "not_allowed")
        assert refused["rule"] == "capability"
        async with stage.host() as host:
            await host.users.grant("ann", role="capability:gpu")
        able = await Plain.registered(client, **body)
        plain = await Plain.registered(client)
        run = await start(client, "drawn")
        numbers = [one["number"] for one in (await client.get("/work/queues")).json()["queues"] if one["capabilities"]]
        assert told(await plain.post("claim", {"queues": numbers}), 403, "not_allowed")["rule"] == "capability"
        assert await plain.claim("remote.draw") == []
        assert [one["run_id"] for one in await able.claim("remote.draw")] == [run]


async def test_what_only_a_whole_worker_can_run_is_handed_back_with_the_reason(database_url: str) -> None:
    async with on_service(database_url) as (stage, _url, client):
        wrong = sk.Workflow("wrong")
        wrong.step("odd", "remote.double", inputs={"n": "${{ input.a.b }}"})
        await stage.publish(wrong)
        plain = await Plain.registered(client)
        run = await start(client, "wrong", {"a": 1})
        assert await plain.claim("remote.double") == []
        found = (await client.get(f"/runs/{run}/result", params={"wait": 5})).json()
        assert found["state"] == "failed"
        assert "cannot be rendered" in str(found["error"])


async def test_a_transactional_step_that_a_remote_worker_hands_back_is_no_error(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="stepkeep"):
        async with on_service(database_url) as (stage, url, client):
            paid = sk.Workflow("paid")
            paid.step("pay", "remote.pay", transactional=True)
            await stage.publish(paid)
            async with working(url, await stage.key("work", owner="bob"), registry(pay=lambda: None)):
                run = await start(client, "paid")

                async def is_handed_back() -> bool:
                    return "handed back" in caplog.text

                await eventually(is_handed_back)
                assert (await client.get(f"/runs/{run}")).json()["run"]["state"] in ("queued", "running")
    assert {one.levelname for one in caplog.records if "handed back" in one.getMessage()} == {"INFO"}


async def test_a_cancelled_run_stops_the_handler_of_a_remote_worker(database_url: str) -> None:
    async with on_service(database_url) as (stage, url, client):
        slow = sk.Workflow("slow")
        slow.step("wait", "remote.wait")
        await stage.publish(slow)
        began, stopped = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        async def wait() -> None:
            loop.call_soon_threadsafe(began.set)
            try:
                await asyncio.Event().wait()
            finally:
                loop.call_soon_threadsafe(stopped.set)

        async with working(url, await stage.key("work", owner="bob"), registry(wait=wait)):
            run = await start(client, "slow")
            async with asyncio.timeout(20):
                await began.wait()
                assert (await client.post(f"/runs/{run}/cancel", json={})).status_code == 200
                await stopped.wait()
            found = (await client.get(f"/runs/{run}/result", params={"wait": 10})).json()
            assert found["state"] == "cancelled"


async def test_a_key_without_the_scope_work_is_refused_before_anything_is_claimed(database_url: str) -> None:
    async with on_service(database_url) as (stage, url, _client):
        with pytest.raises(NotAllowed) as refused:
            async with remote_worker(url, await stage.key("read", owner="bob"), registry()):
                raise AssertionError("it must not begin")
        assert refused.value.rule == "scope"


async def test_a_plain_worker_adds_steps_and_is_given_their_inputs(database_url: str) -> None:
    async with on_service(database_url) as (stage, _url, client):
        made = sk.Workflow("planned")
        made.step("plan", "remote.plan", then={"max_steps": 2})
        await stage.publish(made)
        plain = await Plain.registered(client)
        run = await start(client, "planned", {"n": 3})
        [claim] = await plain.claim("remote.plan", wait_seconds=5)
        wrong = await plain.post("report", {"reports": [{**_named(claim), "outcome": {"kind": "then"}}]})
        told(wrong, 400, "invalid_input")
        read = "${{ steps.one.output }}"
        steps = [
            {"name": "one", "uses": "remote.double"},
            {"name": "two", "uses": "remote.double", "with": {"n": read}},
        ]
        answer = await plain.report(claim, {"kind": "then", "steps": steps, "output": "planned"})
        assert answer["replies"] == [{"accepted": True, "repeated": False, "state": "awaiting_children"}]
        for given, output in (({"n": 3}, 6), ({"n": 6}, 12)):
            [one] = await plain.claim("remote.double", wait_seconds=5)
            assert one["inputs"] == given
            await plain.report(one, {"kind": "completed", "output": output})
        found = (await client.get(f"/runs/{run}/result", params={"wait": 5})).json()
        assert found["output"] == {"output": "planned", "steps": {"one": 6, "two": 12}}


def _named(claim: dict[str, Any]) -> dict[str, Any]:
    return {name: claim[name] for name in ("run_id", "no", "fence")}
