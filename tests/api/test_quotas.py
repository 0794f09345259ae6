"""Quotas of keys and tenants: unfinished runs, exact among processes, and requests a minute; 429 with Retry-After."""

from __future__ import annotations

import asyncio

import pytest

import stepkeep as sk
from stepkeep.api.app import create_app
from stepkeep.engine import AsyncEngine
from stepkeep.errors import InvalidInput, NotAllowed, QuotaExceeded
from stepkeep.operations import quotas
from stepkeep.operations.by_key import Sending, Sent
from stepkeep.operations.quotas import Quotas, RequestBuckets
from tests.api.stage import GATED, Stage, on, told
from tests.suites import first_on

START = {"workflow": "gated"}


def test_of_fifty_parallel_starts_so_many_are_made_as_the_quota_allows(database_url: str) -> None:
    async def act(stage: Stage) -> None:
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

    on(database_url, act)


def test_a_repeated_request_needs_no_place(database_url: str) -> None:
    async def act(stage: Stage) -> None:
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

    on(database_url, act)


def test_a_message_that_has_to_start_a_second_run_takes_a_place_for_it(database_url: str) -> None:
    ended = sk.Workflow("ended")
    ended.wait("last", "end")

    async def act(stage: Stage) -> None:
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

    on(database_url, act)


def test_a_message_to_a_live_run_needs_no_place_and_one_that_starts_a_run_does(database_url: str) -> None:
    async def act(stage: Stage) -> None:
        await stage.publish(GATED)
        async with AsyncEngine(database_url, key=await stage.key(max_concurrent_runs=1)) as engine:
            await engine.send(None, "paid", 1, key="order-1", start="gated")
            await engine.send(None, "paid", 2, key="order-1", start="gated")
            with pytest.raises(QuotaExceeded):
                await engine.send(None, "paid", 1, key="order-2", start="gated")

    on(database_url, act)


def test_a_message_starts_no_run_beyond_the_quota_if_the_live_run_ends_meanwhile(database_url: str) -> None:
    """The sender has no place left, and sees a live run of another caller, which ends before the message is there."""

    async def act(stage: Stage) -> None:
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

    on(database_url, act)


@first_on("sqlite")
def test_the_keys_of_a_tenant_share_its_quota(database_url: str) -> None:
    async def act(stage: Stage) -> None:
        await stage.publish(GATED)
        async with stage.host() as host:
            said = await host.tenants.set_quotas("acme", max_concurrent_runs=2, max_requests_per_min=1000)
            assert said["quotas"] == {"max_concurrent_runs": 2, "max_requests_per_min": 1000}
            assert await host.tenants.quotas("acme") == said
            with pytest.raises(InvalidInput):
                await host.tenants.set_quotas("acme", max_concurrent_runs=0)
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

    on(database_url, act)


@first_on("sqlite")
def test_requests_a_minute_are_limited_and_refill(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(stage: Stage) -> None:
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

    on(database_url, act)


@first_on("sqlite")
def test_the_service_has_defaults_for_keys_without_quotas(database_url: str) -> None:
    async def act(stage: Stage) -> None:
        await stage.publish(GATED)
        stage.app = create_app(stage.engine, quotas=Quotas(max_concurrent_runs=1, max_requests_per_min=100))
        async with stage.client(await stage.key()) as client:
            assert (await client.post("/runs", json=START)).headers["x-ratelimit-limit"] == "100"
            told(await client.post("/runs", json=START), 429, "quota_exceeded")
        async with stage.client(await stage.key(max_concurrent_runs=2)) as client:
            assert [(await client.post("/runs", json=START)).status_code for _ in range(3)] == [201, 201, 429]

    on(database_url, act)


def test_a_place_whose_run_was_never_made_is_free_after_a_minute(database_url: str) -> None:
    async def act(stage: Stage) -> None:
        await stage.publish(GATED)
        key = await stage.key(max_concurrent_runs=1)
        async with AsyncEngine(database_url, key=key) as engine:
            scopes = await engine.quotas._scopes("acme", key.split("_")[1])
            lost = "01a1e12c-57d6-75bf-abba-e99e88c4e41f"
            now = await engine.store.now()
            assert await engine.store.quotas.take("acme", lost, scopes, now, quotas.PATIENCE) is None
            with pytest.raises(QuotaExceeded):
                await engine.start("gated")
            engine.store.clock_offset = quotas.PATIENCE + 1_000_000
            assert (await engine.start("gated")).created

    on(database_url, act)


def test_a_place_is_kept_if_its_start_is_cut_off_by_its_caller(database_url: str) -> None:
    """A client hangs up while its run is committed: nobody knows whether the run exists, so the place stays taken."""

    async def act(stage: Stage) -> None:
        await stage.publish(GATED)
        key = await stage.key(max_concurrent_runs=1)
        async with AsyncEngine(database_url, key=key) as engine:
            taken = asyncio.Event()

            async def start() -> None:
                async with engine.quotas.place("acme", key.split("_")[1], "01a1e12c-57d6-75bf-abba-e99e88c4e41f"):
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

    on(database_url, act)


@first_on("sqlite")
def test_a_rotated_key_keeps_its_quotas(database_url: str) -> None:
    async def act(stage: Stage) -> None:
        key = await stage.key(max_concurrent_runs=3, max_requests_per_min=60)
        async with stage.host() as host:
            made = (await host.keys.rotate(key.split("_")[1]))["key"]
        assert (made["max_concurrent_runs"], made["max_requests_per_min"]) == (3, 60)

    on(database_url, act)


def test_a_bucket_never_holds_more_than_a_minute() -> None:
    now = [0.0]
    buckets = RequestBuckets(lambda: now[0])
    assert buckets.take("k", 2) == 1
    now[0] += 10_000
    assert [buckets.take("k", 2) for _ in range(2)] == [1, 0]
    with pytest.raises(QuotaExceeded) as refused:
        buckets.take("k", 2)
    assert refused.value.retry_after == 31
