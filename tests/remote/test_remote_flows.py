"""Flows on workers over HTTP: the same file, the same results, and the same record as on a worker with the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import msgspec
import pytest

import stepkeep as sk
from stepkeep.definition.python.calls import digest_of
from stepkeep.definition.python.handlers import registry_of
from stepkeep.kernel.machine.rows import OutboxEntry
from stepkeep.operations.remote.recorded_calls import PAGE_BYTES
from stepkeep.worker.settings import Settings
from tests.api.stage import TENANT, Stage, on, told
from tests.operations import test_flow_versions as flow_versions
from tests.remote import flows
from tests.remote.test_remote_worker import Plain, ended, start, working
from tests.workbench import eventually

Act = Callable[[Stage, str, httpx2.AsyncClient], Awaitable[None]]


@asynccontextmanager
async def on_service(url: str) -> AsyncIterator[tuple[Stage, str, httpx2.AsyncClient]]:
    async with on(url) as stage:
        await stage.publish(*flows.FLOWS)
        async with stage.serving(await stage.key()) as client:
            yield stage, str(client.base_url), client


async def judged(client: httpx2.AsyncClient, run_id: str) -> None:
    verdict = (await client.get(f"/runs/{run_id}/certificate")).json()
    assert verdict["ok"], verdict


async def test_a_remote_worker_runs_a_flow_with_all_kinds_of_calls_of_handlers(database_url: str) -> None:
    async with on_service(database_url) as (stage, url, client):
        flows.called.clear()
        async with working(url, await stage.key("work", owner="bob"), registry_of(None)):
            found = await ended(client, "far.sums", {"numbers": [1, 2, 3]})
        assert found["state"] == "succeeded", found
        assert found["output"] == {"one": 2, "at_once": [2, 4, 6], "mapped": [2, 4, 6], "drawn": 7, "why": "no"}
        assert flows.called == ["drawn"]
        await judged(client, found["run_id"])
        emitted = await _emitted(stage, found["run_id"])
        assert [(one.name, one.payload) for one in emitted] == [("doubled", b'{"n":2}')]
        steps = (await client.get(f"/runs/{found['run_id']}")).json()["steps"]
        assert [step["state"] for step in steps] == ["succeeded", *["succeeded"] * 8, "skipped"]


async def test_calls_of_a_remote_flow_have_the_options_of_their_handlers_and_are_undone(database_url: str) -> None:
    async with on_service(database_url) as (stage, url, client):
        flows.undone.clear()
        async with working(url, await stage.key("work", owner="bob"), registry_of(None)):
            well = await ended(client, "far.trip", {})
            assert (well["state"], well["output"]) == ("succeeded", "booked")
            badly = await ended(client, "far.trip", {"ends": "badly"})
        assert (badly["state"], flows.undone) == ("rolled_back", ["suite", "flaky"]), badly
        await judged(client, well["run_id"])
        await judged(client, badly["run_id"])


async def test_a_remote_flow_cancels_calls_and_has_timers(database_url: str) -> None:
    async with on_service(database_url) as (stage, url, client):
        async with working(url, await stage.key("work", owner="bob"), registry_of(None)):
            found = await ended(client, "far.racing", {})
        assert (found["state"], found["output"]) == ("succeeded", [2, True]), found
        await judged(client, found["run_id"])
        steps = (await client.get(f"/runs/{found['run_id']}")).json()["steps"]
        assert [step["state"] for step in steps] == [
            *("succeeded", "cancelled", "cancelled", "succeeded"),
            *("succeeded", "cancelled", "cancelled"),
        ]


async def test_a_retry_on_a_remote_worker_makes_only_the_call_again_that_failed(database_url: str) -> None:
    async with on_service(database_url) as (stage, url, client):
        flows.paid.clear()
        flows.broken.update({2, 3})
        try:
            async with working(url, await stage.key("work", owner="bob"), registry_of(None)):
                first = await ended(client, "far.payments", {})
                assert first["state"] == "failed", first
                flows.paid.clear()
                flows.broken.clear()
                retried = (await client.post(f"/runs/{first['run_id']}/retry", json={})).json()["run_id"]
                second = (await client.get(f"/runs/{retried}/result", params={"wait": 20})).json()
        finally:
            flows.broken.clear()
        assert (second["state"], second["output"]) == ("succeeded", [1, 2, 3, 4])
        again = {n: key.split(":")[0] for n, key in flows.paid}
        assert {n: again[n] for n in (2, 3, 4)} == {2: first["run_id"], 3: first["run_id"], 4: retried}
        assert again.get(1, first["run_id"]) == first["run_id"], "it may have ended after the other two"
        await judged(client, retried)


async def test_a_remote_flow_waits_for_messages_and_for_people(database_url: str) -> None:
    async with on_service(database_url) as (stage, url, client):
        async with stage.host() as host:
            await host.users.grant("ann", role="finance")
        async with working(url, await stage.key("work", owner="bob"), registry_of(None)):
            run_id = await start(client, "far.asking", {})
            for cents in (1, 20):
                sent = await client.post(f"/runs/{run_id}/messages", json={"name": "paid", "payload": {"cents": cents}})
                assert sent.status_code < 300, sent.text
            async with asyncio.timeout(20):
                while (await client.post(f"/runs/{run_id}/approve", json={})).status_code != 200:
                    until = {"wait": 5, "until_blocked": True}
                    await client.get(f"/runs/{run_id}/result", params=until)
            found = (await client.get(f"/runs/{run_id}/result", params={"wait": 20})).json()
        assert found["state"] == "succeeded", found
        assert found["output"] == {"paid": {"cents": 20}, "decision": "approved"}
        await judged(client, run_id)


async def test_a_remote_flow_starts_children_and_hears_of_their_ends(database_url: str) -> None:
    async with on_service(database_url) as (stage, url, client):
        async with working(url, await stage.key("work", owner="bob"), registry_of(None)):
            found = await ended(client, "far.parent", {"n": 4})
        assert found["state"] == "succeeded", found
        assert found["output"] == {"one": 8, "loose": ["run_id"], "absent": "validation"}
        await judged(client, found["run_id"])


async def test_a_remote_flow_continues_as_new(database_url: str) -> None:
    async with on_service(database_url) as (stage, url, client):
        # The queues of the calls are new: the worker reads them when its report is answered, not with a refresh.
        patient = Settings(refresh_queues_seconds=3600.0)
        async with working(url, await stage.key("work", owner="bob"), registry_of(None), settings=patient):
            first = await start(client, "far.crawl", {"page": 1, "seen": 0})
            found = (await client.get(f"/runs/{first}/result", params={"wait": 20})).json()
        assert (found["state"], found["output"]) == ("succeeded", 12)
        runs = [first]
        while (told := (await client.get(f"/runs/{runs[-1]}")).json()["run"].get("continued_as")) is not None:
            runs.append(told["run_id"])
        assert len(runs) == 3
        for one in runs:
            await judged(client, one)


async def test_calls_beyond_the_bounds_fail_a_remote_flow_in_words(database_url: str) -> None:
    async with on_service(database_url) as (stage, url, client):
        async with working(url, await stage.key("work", owner="bob"), registry_of(None)):
            many = await ended(client, "far.many", {})
            large = await ended(client, "far.large", {})
        assert (many["state"], large["state"]) == ("failed", "failed")
        assert "it makes more than 5 calls, as its definition allows" in many["error"]
        assert "Make fewer calls at a time" in large["error"]
        await judged(client, many["run_id"])
        await judged(client, large["run_id"])


@pytest.mark.parametrize("order", [("far", "near"), ("near", "far"), ("far", "far")], ids="-".join)
async def test_a_flow_goes_on_at_another_worker_of_either_kind(database_url: str, order: tuple[str, str]) -> None:
    """The first worker leaves while the flow waits for a message; the second replays it."""

    async with on_service(database_url) as (stage, url, client):
        flows.called.clear()
        key = await stage.key("work", owner="bob")

        @asynccontextmanager
        async def worker(kind: str) -> AsyncIterator[None]:
            if kind == "far":
                async with working(url, key, registry_of(None)):
                    yield
                return
            async with sk.AsyncEngine(stage.url, tenant=TENANT, registry=registry_of(None)) as engine:
                made = engine.worker()
                serving = asyncio.create_task(made.serve())
                await made.joined.wait()
                try:
                    yield
                finally:
                    made.stop(grace=0)
                    await serving

        run_id = await start(client, "far.halves", {"n": 5})
        async with worker(order[0]):
            found = (await client.get(f"/runs/{run_id}/result", params={"wait": 20, "until_blocked": True})).json()
            assert found["state"] in ("blocked", "running"), found
            async with asyncio.timeout(20):
                while not await _waits(client, run_id):
                    await client.get(f"/runs/{run_id}/result", params={"wait": 1, "until_blocked": True})
        async with worker(order[1]):
            await client.post(f"/runs/{run_id}/messages", json={"name": "on", "payload": 3})
            found = (await client.get(f"/runs/{run_id}/result", params={"wait": 20})).json()
        assert (found["state"], found["output"]) == ("succeeded", [10, 7, 3, 6]), found
        assert flows.called == ["drawn"]
        emitted = await _emitted(stage, run_id)
        assert [one.name for one in emitted] == ["begun", "ended"]
        await judged(client, run_id)


async def _emitted(stage: Stage, run_id: str) -> list[OutboxEntry]:
    async with stage.host() as host:
        return await host.store.read_outbox(TENANT, run_id)


async def _waits(client: httpx2.AsyncClient, run_id: str) -> bool:
    steps = (await client.get(f"/runs/{run_id}")).json()["steps"]
    return any(step["state"] == "awaiting_event" for step in steps)


def asked(kind: str, name: str, arguments: Any, step: Any, **more: Any) -> dict[str, Any]:
    """A call as a worker writes it."""
    digest = digest_of(msgspec.json.encode(arguments))
    return {"kind": kind, "name": name, "digest": digest, "arguments": arguments, "step": step, **more}


DOUBLE = asked("step", "far.double", {"n": 1}, {"uses": "far.double"})
AGAIN = {"name": "far.crawl", "version": 1, "detached": True}

REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "another kind": ("kind", {"calls": [{**DOUBLE, "kind": "shell"}]}),
    "a program": ("uses", {"calls": [asked("step", "x", {}, {"command": ["rm", "-rf", "/"]})]}),
    "a program beside a handler": ("command", {"calls": [asked("step", "x", {}, {"uses": "a.b", "command": ["ls"]})]}),
    "an unknown key": ("retrys", {"calls": [asked("step", "x", {}, {"uses": "a.b", "retrys": 3})]}),
    "a timeout beyond its bounds": ("timeout", {"calls": [asked("step", "x", {}, {"uses": "a.b", "timeout": "900d"})]}),
    "no handler's name": ("uses", {"calls": [asked("step", "x", {}, {"uses": "rm -rf /"})]}),
    "a call that would own steps": (
        "ctx.map",
        {"calls": [asked("step", "x", {}, {"uses": "a.b", "map": "${{ input.x }}"})]},
    ),
    "an expression that is none": (
        "if",
        {"calls": [asked("wait_for", "x", {}, {"wait": {"event": "x", "if": "1 +"}})]},
    ),
    "the digest of other arguments": ("digest", {"calls": [{**DOUBLE, "arguments": {"n": 2}}]}),
    "the digest of another child": ("digest", {"calls": [asked("child", "w", {"n": 1}, {"workflow": "w"})]}),
    "no digest": ("digest", {"calls": [{**DOUBLE, "digest": "x"}]}),
    "a queue of its own choice": ("queue", {"calls": [{**DOUBLE, "queue": 1}]}),
    "arguments that are too large": ("262144", {"calls": [asked("step", "x", "y" * 262_144, {"uses": "a.b"})]}),
    "arguments that no database keeps": ("arguments", {"calls": [asked("step", "x", {"a": "\x00"}, {"uses": "a.b"})]}),
    "a name of two lines": ("name of call 0", {"calls": [asked("step", "a\nb", {}, {"uses": "a.b"})]}),
    "a step that is a list": ("step", {"calls": [{**DOUBLE, "step": ["uses"]}]}),
    "a long step": ("32768", {"calls": [asked("step", "x", {}, {"uses": "a.b", "description": "x" * 33_000})]}),
    "more calls than any flow": ("calls", {"calls": [DOUBLE] * 10_001}),
    "ends that it was never given": ("seen", {"seen": 1, "calls": [DOUBLE]}),
    "fewer ends than none": ("seen", {"seen": -1}),
    "a call that it has not made": ("cancels calls that it has not made", {"calls": [DOUBLE], "cancels": [1]}),
    "the words of another outcome": ("output", {"calls": [DOUBLE], "output": 1}),
    "another workflow in its place": ("another run", {"calls": [asked("continue", "w", {}, {"workflow": "w"})]}),
    "an input that does not fit": (
        "does not fit",
        {"calls": [asked("continue", "far.crawl", {"pages": 1}, {"workflow": AGAIN})]},
    ),
    "a successor beside a call": (
        "last call",
        {"calls": [DOUBLE, asked("continue", "far.crawl", {"page": 1, "seen": 1}, {"workflow": AGAIN})]},
    ),
}


async def test_what_no_flow_could_report_is_refused_and_changes_nothing(database_url: str) -> None:
    async with on_service(database_url) as (stage, _url, client):
        plain = await Plain.registered(client)
        run = await start(client, "far.crawl", {"page": 1, "seen": 0})
        [claim] = await plain.claim("far.crawl", wait_seconds=5)
        assert claim["flow"] == {"calls": 0, "seen": 0}
        named = {name: claim[name] for name in ("run_id", "no", "fence")}

        async def stored() -> Any:
            async with stage.host() as host:
                return (
                    await host.store.read_steps(TENANT, run),
                    len(await host.store.read_journal(TENANT, run)),
                    await host.store.list_queues(TENANT),
                )

        before = await stored()
        assert before[1] > 0
        for what, (said, outcome) in REFUSED.items():
            answer = await plain.post("report", {"reports": [{**named, "outcome": {"kind": "suspended", **outcome}}]})
            assert said in str(told(answer, 400, "invalid_input")), (what, answer.text)
            assert await stored() == before, what
        # So many different steps are read beside the loop of the service, and are refused all the same.
        many = [asked("step", "x", {}, {"uses": f"far.x{number}"}) for number in range(60)]
        wrong = {"kind": "suspended", "calls": [*many, {**DOUBLE, "arguments": {"n": 2}}]}
        answer = await plain.post("report", {"reports": [{**named, "outcome": wrong}]})
        assert "call 60: the digest" in told(answer, 400, "invalid_input")["detail"]
        assert await stored() == before
        good = {"kind": "suspended", "calls": [DOUBLE]}
        # A good report beside a bad one, another fence, another step, another worker: nothing is made for them.
        new = {"kind": "suspended", "calls": [asked("step", "x", {}, {"uses": "far.new"})]}
        both = [{**named, "outcome": new}, {**named, "outcome": {**good, "seen": -1}}]
        told(await plain.post("report", {"reports": both}), 400, "invalid_input")
        late = {**named, "fence": claim["fence"] + 1}
        other = await Plain.registered(client, instance="fedcba9876543210")
        for worker, name in ((plain, late), (other, named), (plain, {**named, "no": 4})):
            answer = await worker.post("report", {"reports": [{**name, "outcome": new}]})
            [reply] = answer.json()["replies"]
            assert (reply["accepted"], reply["code"]) in ((False, "fenced"), (False, "not_found")), reply
            told(await worker.post("calls", name), 404, "not_found")
        assert await stored() == before
        [reply] = (await plain.report(claim, good))["replies"]
        assert (reply["accepted"], reply["state"]) == (True, "awaiting_children")


async def test_a_step_that_is_no_flow_makes_no_calls(database_url: str) -> None:
    async with on_service(database_url) as (stage, _url, client):
        chain = sk.Workflow("plain")
        chain.step("one", "far.double")
        await stage.publish(chain)
        plain = await Plain.registered(client)
        await start(client, "plain", {"n": 1})
        [claim] = await plain.claim("far.double", wait_seconds=5)
        named = {name: claim[name] for name in ("run_id", "no", "fence")}
        assert claim["flow"] is None
        answer = await plain.post(
            "report", {"reports": [{**named, "outcome": {"kind": "suspended", "calls": [DOUBLE]}}]}
        )
        assert "is no flow" in told(answer, 400, "invalid_input")["detail"]
        assert "is no flow" in told(await plain.post("calls", named), 400, "invalid_input")["detail"]


LONG = "a page ends with this" * (PAGE_BYTES // 20)


async def test_a_plain_worker_drives_a_flow_and_reads_its_calls_in_pages(database_url: str) -> None:
    """A page that is read later shows no end that came after the first page: a replay takes ends in their order."""

    async with on_service(database_url) as (_stage, _url, client):
        plain = await Plain.registered(client)
        run = await start(client, "far.sums", {"numbers": [1]})
        [claim] = await plain.claim("far.sums", wait_seconds=5)
        calls = [asked("step", "far.double", {"n": n}, {"uses": "far.double"}) for n in range(4)]
        await plain.report(claim, {"kind": "suspended", "calls": calls, "seen": 0, "code": "abc"})
        held = {one["inputs"]["n"]: one for one in await plain.claim("far.double", wait_seconds=5)}
        assert sorted(held) == [0, 1, 2, 3]
        await plain.report(held[1], {"kind": "completed", "output": LONG})
        [again] = await plain.claim("far.sums", wait_seconds=5)
        assert again["flow"] == {"calls": 4, "seen": 0}
        named = {name: again[name] for name in ("run_id", "no", "fence")}
        first = (await plain.post("calls", named)).json()
        assert [(one["kind"], one["name"], one.get("output")) for one in first["calls"]] == [
            ("step", "far.double", None),
            ("step", "far.double", LONG),
        ]
        assert [one.get("settled") for one in first["calls"]] == [None, first["until"]]
        assert first["following"] == 2
        for n in (0, 3):
            await plain.report(held[n], {"kind": "completed", "output": n})
        rest = (await plain.post("calls", {**named, "start": 2, "until": first["until"]})).json()
        assert [one.get("settled") for one in rest["calls"]] == [None, None]
        assert (rest["following"], rest["until"]) == (None, first["until"])
        [reply] = (await plain.report(again, {"kind": "suspended", "seen": 4}))["replies"]
        assert (reply["code"], "3 of its calls have settled" in reply["detail"]) == ("invalid_input", True)
        [reply] = (await plain.report(again, {"kind": "suspended", "seen": 1}))["replies"]
        # Two ends came meanwhile: nothing else would wake it.
        assert reply["state"] == "ready"
        [third] = await plain.claim("far.sums", wait_seconds=5)
        await plain.report(held[2], {"kind": "completed", "output": 2})
        [reply] = (await plain.report(third, {"kind": "completed", "output": "done"}))["replies"]
        assert reply["state"] == "succeeded"
        await judged(client, run)


async def test_remote_workers_keep_versions_apart_and_code_that_does_not_fit_harms_no_run(database_url: str) -> None:
    old, new = flow_versions.code((flow_versions.one, 1)), flow_versions.code((flow_versions.two, 2))
    wrong = flow_versions.code((flow_versions.unlike, 1))
    async with on(database_url) as stage, stage.serving(await stage.key()) as client:
        url, key = str(client.base_url), await stage.key("work", owner="bob")
        await stage.publish(flow_versions.workflow(old, 1), flow_versions.workflow(new, 2))
        run_id = await start(client, "g", {}, version=1)
        async with working(url, key, new), working(url, key, old):
            later = await start(client, "g", {}, version=2)
            for one in (run_id, later):
                await client.get(f"/runs/{one}/result", params={"wait": 20, "until_blocked": True})
        async with working(url, key, wrong):
            sent = await client.post(f"/runs/{run_id}/messages", json={"name": "go", "payload": "on"})
            assert sent.status_code < 300, sent.text

            async def holds() -> bool:
                return bool((await client.get(f"/runs/{run_id}")).json()["steps"][0]["state"] == "awaiting_approval")

            await eventually(holds)
        async with working(url, key, old), working(url, key, new):
            await client.post(f"/runs/{later}/messages", json={"name": "go", "payload": "on"})
            found = [(await client.get(f"/runs/{one}/result", params={"wait": 20})).json() for one in (run_id, later)]
        assert [(one["state"], one["output"]) for one in found] == [
            ("succeeded", [1, 2, "on"]),
            ("succeeded", [2, 2, 3, "on"]),
        ]
        for one in (run_id, later):
            await judged(client, one)
