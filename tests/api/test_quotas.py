"""Quotas of keys and tenants: unfinished runs, exact among processes, and requests a minute; 429 with Retry-After."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.api.app import create_app
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.errors import InvalidInput, NotAllowed, QuotaExceeded
from stepkeep.operations.messages.by_key import Sending, Sent
from stepkeep.operations.people import quotas
from stepkeep.operations.people.quotas import Quotas, RequestBuckets
from tests.api.stage import GATED, HELLO, RIVAL, on, told
from tests.suites import first_on

START = {"workflow": "gated"}


async def test_of_fifty_parallel_starts_so_many_are_made_as_the_quota_allows(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(GATED)
        key = await stage.key(max_concurrent_runs=5)
        async with AsyncEngine(database_url, key=key) as another, stage.client(key) as client:
            here = [client.post("/runs", json=START) for _ in range(25)]
            there = [another.start("gated") for _ in range(25)]
            done = await asyncio.gather(*here, *there, return_exceptions=True)
            refused = [one for one in done if getattr(one, "status_code", 0) == 429 or isinstance(one, QuotaExceeded)]
            assert len(refused) == 45
            runs = (await client.get("/runs?limit=200")).json()["runs"]
            assert len(runs) == 5
            problem = await client.post("/runs", json=START)
            assert told(problem, 429, "quota_exceeded")["quota"] == "max_concurrent_runs"
            assert problem.headers["retry-after"] == "1"
            # One ends, and one place is free.
            await client.post(f"/runs/{runs[0]['id']}/cancel")
            answers = await asyncio.gather(*(client.post("/runs", json=START) for _ in range(5)))
            assert sorted(one.status_code for one in answers) == [201, 429, 429, 429, 429]


async def test_a_repeated_request_needs_no_place(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(GATED)
        async with stage.client(await stage.key(max_concurrent_runs=1)) as client:
            keyed = {"Idempotency-Key": "one"}
            first = await client.post("/runs", json=START, headers=keyed)
            again = await client.post("/runs", json=START, headers=keyed)
            assert (first.status_code, again.status_code) == (201, 200)
            assert first.json()["run_id"] == again.json()["run_id"]
            told(await client.post("/runs", json=START, headers={"Idempotency-Key": "two"}), 429, "quota_exceeded")
            run = first.json()["run_id"]
            told(await client.post("/runs", json={"workflow": "none"}), 400, "invalid_input")
            await client.post(f"/runs/{run}/cancel")
            assert (await client.post(f"/runs/{run}/rerun")).status_code == 201
            told(await client.post("/runs", json=START), 429, "quota_exceeded")


async def test_a_message_that_has_to_start_a_second_run_takes_a_place_for_it(database_url: str) -> None:
    ended = sk.Workflow("ended")
    ended.wait("last", "end")

    async with on(database_url) as stage:
        await stage.publish(ended)
        async with AsyncEngine(database_url, key=await stage.key(max_concurrent_runs=1)) as engine:
            # The kept message ends the first run, which cannot take the other message any more.
            await engine.send(None, "end", 1, key="order-1")
            sent = await engine.send(None, "paid", 2, key="order-1", start="ended")
            assert (await engine.result(sent["run_id"])).state == "blocked"
            assert len((await engine.runs())["runs"]) == 2
            with pytest.raises(QuotaExceeded):
                await engine.start("ended")
            await engine.send(sent["run_id"], "end", 3)
            await engine.start("ended")


async def test_a_message_to_a_live_run_needs_no_place_and_one_that_starts_a_run_does(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(GATED)
        async with AsyncEngine(database_url, key=await stage.key(max_concurrent_runs=1)) as engine:
            await engine.send(None, "paid", 1, key="order-1", start="gated")
            await engine.send(None, "paid", 2, key="order-1", start="gated")
            with pytest.raises(QuotaExceeded):
                await engine.send(None, "paid", 1, key="order-2", start="gated")


async def test_a_message_starts_no_run_beyond_the_quota_if_the_live_run_ends_meanwhile(database_url: str) -> None:
    """The sender has no place left, and sees a live run of another caller, which ends before the message is there."""

    async with on(database_url) as stage:
        await stage.publish(GATED)
        async with (
            stage.host() as host,
            AsyncEngine(database_url, key=await stage.key(max_concurrent_runs=1)) as engine,
        ):
            await engine.start("gated")
            live = await host.start("gated", business_key="order-1")
            lane = engine._key_sender._lane
            put = lane.put

            async def put_late(sending: Sending) -> Sent:
                await host.cancel(live.run_id)
                return await put(sending)

            lane.put = put_late  # type: ignore[method-assign]
            with pytest.raises(QuotaExceeded):
                await engine.send(None, "paid", 1, key="order-1", start="gated")
            assert len((await host.runs())["runs"]) == 2
            assert (await host.mailbox.list())["messages"] == []


@first_on("sqlite")
async def test_the_keys_of_a_tenant_share_its_quota(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(GATED)
        async with stage.host() as host:
            said = await host.tenants.set_quotas("acme", max_concurrent_runs=2, max_requests_per_min=1000)
            set_ones = {name: value for name, value in said["quotas"].items() if value is not None}
            assert set_ones == {"max_concurrent_runs": 2, "max_requests_per_min": 1000}
            assert await host.tenants.quotas("acme") == said
            with pytest.raises(InvalidInput):
                await host.tenants.set_quotas("acme", max_concurrent_runs=0)
            with pytest.raises(InvalidInput, match="there is no quota 'max_runs'"):
                await host.tenants.set_quotas("acme", max_runs=1)
        keys = [await stage.key(owner=name) for name in ("ann", "bob")]
        statuses = []
        for key in (*keys, keys[0]):
            async with stage.client(key) as client:
                statuses.append((await client.post("/runs", json=START)).status_code)
        assert statuses == [201, 201, 429]
        async with AsyncEngine(database_url, key=keys[0]) as engine:
            with pytest.raises(NotAllowed, match="operator"):
                await engine.tenants.set_quotas("acme")
        # A program without a key is the operator's own.
        async with stage.host() as host:
            assert (await host.start("gated")).created


@first_on("sqlite")
async def test_requests_a_minute_are_limited_and_refill(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on(database_url) as stage:
        now = [0.0]
        monkeypatch.setattr(stage.app.service.callers._buckets, "_monotonic", lambda: now[0])
        async with stage.client(await stage.key("read", max_requests_per_min=3)) as client:
            answers = [await client.get("/runs") for _ in range(3)]
            assert [one.headers["x-ratelimit-remaining"] for one in answers] == ["2", "1", "0"]
            assert {one.headers["x-ratelimit-limit"] for one in answers} == {"3"}
            late = await client.get("/runs")
            assert told(late, 429, "quota_exceeded")["quota"] == "max_requests_per_min"
            assert late.headers["retry-after"] == "21"
            now[0] += 20
            assert (await client.get("/runs")).status_code == 200
            told(await client.get("/runs"), 429, "quota_exceeded")
        async with stage.client(await stage.key("read")) as client:
            assert "x-ratelimit-limit" not in (await client.get("/runs")).headers


@first_on("sqlite")
async def test_the_service_has_defaults_for_keys_without_quotas(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(GATED)
        stage.app = create_app(stage.engine, quotas=Quotas(max_concurrent_runs=1, max_requests_per_min=100))
        async with stage.client(await stage.key()) as client:
            assert (await client.post("/runs", json=START)).headers["x-ratelimit-limit"] == "100"
            told(await client.post("/runs", json=START), 429, "quota_exceeded")
        async with stage.client(await stage.key(max_concurrent_runs=2)) as client:
            assert [(await client.post("/runs", json=START)).status_code for _ in range(3)] == [201, 201, 429]


async def test_a_place_whose_run_was_never_made_is_free_after_a_minute(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(GATED)
        key = await stage.key(max_concurrent_runs=1)
        async with AsyncEngine(database_url, key=key) as engine:
            scopes = await engine.quotas._scopes(engine.access.caller())
            lost = "01a1e12c-57d6-75bf-abba-e99e88c4e41f"
            now = await engine.store.now()
            assert await engine.store.quotas.take("acme", lost, scopes, now, quotas.PATIENCE) is None
            with pytest.raises(QuotaExceeded):
                await engine.start("gated")
            engine.store.clock_offset = quotas.PATIENCE + 1_000_000
            assert (await engine.start("gated")).created


async def test_a_place_is_kept_if_its_start_is_cut_off_by_its_caller(database_url: str) -> None:
    """A client hangs up while its run is committed: nobody knows whether the run exists, so the place stays taken."""

    async with on(database_url) as stage:
        await stage.publish(GATED)
        key = await stage.key(max_concurrent_runs=1)
        async with AsyncEngine(database_url, key=key) as engine:
            taken = asyncio.Event()

            async def start() -> None:
                async with engine.quotas.reserve(engine.access.caller(), "01a1e12c-57d6-75bf-abba-e99e88c4e41f"):
                    taken.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(start())
            await taken.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(QuotaExceeded):
                await engine.start("gated")
            engine.store.clock_offset = quotas.PATIENCE + 1_000_000
            assert (await engine.start("gated")).created


@first_on("sqlite")
async def test_a_rotated_key_keeps_its_quotas(database_url: str) -> None:
    async with on(database_url) as stage:
        key = await stage.key(max_concurrent_runs=3, max_requests_per_min=60)
        async with stage.host() as host:
            made = (await host.keys.rotate(key.split("_")[1])).key
        assert (made["max_concurrent_runs"], made["max_requests_per_min"]) == (3, 60)


async def test_keys_that_replace_each_other_count_together(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(HELLO)
        key = await stage.key(max_concurrent_runs=2, max_requests_per_min=4)
        async with stage.client(key) as client:
            new = (await client.post(f"/api-keys/{key.split('_')[1]}/rotate")).json()["secret"]
        statuses = []
        for one in (key, new, new, new):
            async with stage.client(one) as client:
                answer = await client.post("/runs", json={"workflow": "hello"})
                statuses.append((answer.status_code, answer.json().get("quota")))
        assert statuses == [(201, None), (201, None), (429, "max_concurrent_runs"), (429, "max_requests_per_min")]


def test_a_bucket_never_holds_more_than_a_minute() -> None:
    now = [0.0]
    buckets = RequestBuckets(lambda: now[0])
    assert buckets.take("k", 2) == 1
    now[0] += 10_000
    assert [buckets.take("k", 2) for _ in range(2)] == [1, 0]
    with pytest.raises(QuotaExceeded) as refused:
        buckets.take("k", 2)
    assert refused.value.retry_after == 31


ROOMS = [
    ("max_definitions", lambda client, n: client.post("/workflows", json=NAMED | {"workflow": f"w{n}"})),
    ("max_definition_bytes", lambda client, n: client.put(f"/schemas/s{n}", json={"document": {"title": "x" * 200}})),
    ("max_triggers", lambda client, n: client.post("/triggers", json=TRIGGER | {"name": f"t{n}"})),
    ("max_kept_messages", lambda client, n: client.post("/messages", json=KEPT | {"business_key": f"k{n}"})),
    ("max_kept_message_bytes", lambda client, n: client.post("/messages", json=KEPT | {"business_key": f"k{n}"})),
    ("max_people", lambda client, n: client.post("/users", json={"name": f"person{n}"})),
    ("max_settings", lambda client, n: client.post("/slots", json={"most": n + 10})),
]
NAMED = {"workflow": "w", "timeout": "1h", "steps": [{"name": "a", "uses": "api.greet", "timeout": "5s"}]}
TRIGGER = {"workflow": "gated", "trigger": {"every": "1h"}}
KEPT = {"name": "paid", "payload": "x" * 100}


@pytest.mark.parametrize(("quota", "add"), ROOMS, ids=[name for name, _ in ROOMS])
async def test_what_a_tenant_keeps_is_bounded_by_quotas(
    database_url: str, quota: str, add: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process goes by what it counted for a while, and by what it added since."""

    async with on(database_url) as stage:
        await stage.publish(GATED)
        key, rival = await stage.key(), await stage.key(tenant=RIVAL)
        async with stage.client(key) as client, stage.client(rival) as other, stage.host() as host:
            assert (await add(client, 0)).status_code < 300
            kind = next(kind for kind, names in quotas.ROWS.items() if quota in names[:2])
            used = dict(zip(("count", "bytes"), await host.store.measure_use("acme", kind, 1000), strict=True))
            most = used["bytes"] + 250 if "bytes" in quota else used["count"] + 2
            await host.tenants.set_quotas("acme", **{quota: most})
            stage.engine.quotas._tenants.clear()
            stage.app.service.callers.engines.of("acme").quotas._tenants.clear()
            answers = [await add(client, number) for number in range(1, 5)]
            assert [one.status_code < 300 for one in answers][-1] is False, [one.text for one in answers]
            refused = told(answers[-1], 429, "quota_exceeded")
            assert refused["quota"] == quota
            assert f"({quota})" in refused["detail"]
            assert 1 <= sum(one.status_code < 300 for one in answers) <= 2
            await other.post("/workflows", json=NAMED | {"workflow": "gated"})
            assert (await add(other, 9)).status_code < 300, "another tenant has its own room"


async def test_a_message_to_a_run_that_lives_needs_no_room(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(GATED)
        async with stage.client(await stage.key()) as client, stage.host() as host:
            await host.tenants.set_quotas("acme", max_kept_messages=1)
            started = await client.post("/runs", json=START | {"business_key": "order-1"})
            assert started.status_code == 201
            assert (await client.post("/messages", json=KEPT | {"business_key": "order-2"})).status_code == 200
            told(await client.post("/messages", json=KEPT | {"business_key": "order-3"}), 429, "quota_exceeded")
            assert (await client.post("/messages", json=KEPT | {"business_key": "order-1"})).status_code == 200
            # The quota bounds callers with a key; a program without one is the operator's own.
            await host.send(None, "paid", 1, key="order-4")


@first_on("sqlite")
async def test_what_is_handed_in_is_bounded_by_the_hour(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with on(database_url) as stage:
        now = [0.0]
        monkeypatch.setattr(stage.app.service.callers._buckets, "_monotonic", lambda: now[0])
        await stage.publish(GATED)
        async with stage.client(await stage.key()) as client, stage.host() as host:
            run = (await client.post("/runs", json=START)).json()["run_id"]
            await host.tenants.set_quotas("acme", max_bytes_per_hour=30_000, max_notes_per_hour=2)
            stage.app.service.callers.engines.of("acme").quotas._tenants.clear()
            notes = [await client.post(f"/runs/{run}/notes", json={"note": "seen"}) for _ in range(3)]
            assert [one.status_code for one in notes] == [200, 200, 429], notes[0].text
            assert told(notes[2], 429, "quota_exceeded")["quota"] == "max_notes_per_hour"
            large = START | {"input": {"text": "x" * 20_000}}
            assert (await client.post("/runs", json=large)).status_code == 201
            refused = await client.post("/runs", json=large)
            assert told(refused, 429, "quota_exceeded")["quota"] == "max_bytes_per_hour"
            assert 0 < int(refused.headers["retry-after"]) < 3600
            now[0] += 3600
            assert (await client.post("/runs", json=large)).status_code == 201


async def test_a_tenant_that_adds_more_and_more_is_counted_now_and_then(database_url: str) -> None:
    async with on(database_url) as stage, stage.host() as host:
        await host.tenants.set_quotas("acme", max_triggers=1000)
        looks, store = [], host.quotas._store
        measure = store.measure_use

        async def counted(tenant: str, kind: str, most: int) -> tuple[int, int]:
            looks.append(kind)
            return await measure(tenant, kind, most)

        now = [0.0]
        host.quotas._monotonic = lambda: now[0]
        store.measure_use = counted  # type: ignore[method-assign]
        for _ in range(100):
            await host.quotas.add("acme", "triggers")
        assert len(looks) == 1
        for _ in range(900):
            await host.quotas.add("acme", "triggers")
        with pytest.raises(QuotaExceeded):
            await host.quotas.add("acme", "triggers")
        assert len(looks) == 1, "the clock stood still"
        now[0] += 2
        await host.quotas.add("acme", "triggers")
        assert len(looks) == 2, "nothing was added after all"
