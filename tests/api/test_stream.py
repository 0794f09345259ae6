"""Streams: every entry once, in order; resumed by id; ended by the run, the key or a stop."""

from __future__ import annotations

import asyncio

import pytest

from stepkeep.api import stream
from tests.api.sse import all_of, listening
from tests.api.stage import GATED, HELLO, RIVAL, Stage, on, told
from tests.suites import first_on


def test_a_stream_tells_every_entry_as_it_comes_and_ends_with_the_run(database_url: str) -> None:
    async def act(stage: Stage) -> None:
        await stage.publish(GATED, tenant="default")
        await stage.engine.start_worker()
        async with stage.serving(await stage.key(tenant="default")) as client:
            run = (await client.post("/runs", json={"workflow": "gated"})).json()["run_id"]
            async with listening(client, f"/runs/{run}/stream") as events:
                first = await anext(events)
                assert (first.id, first.event, first.data["seq"]) == ("1", "entry", 1)
                assert first.data["lines"][0]["metadata"]["run_id"] == run
                # The run waits for its gate; what follows is told while the stream is open.
                assert (await client.post(f"/runs/{run}/approve")).status_code == 200
                rest = [one async for one in events]
            entries = (await client.get(f"/runs/{run}/journal")).json()["entries"]
            assert [first.data, *(one.data for one in rest[:-1])] == entries
            assert (rest[-1].event, rest[-1].data) == ("end", {"run_id": run, "seq": len(entries)})
            # From any id on, what follows is the same, and nothing is told twice.
            for known in range(len(entries) + 1):
                again = await all_of(client, f"/runs/{run}/stream", Last_Event_ID=str(known))
                assert [one.data for one in again[:-1]] == entries[known:]
                assert again[-1].event == "end"
            shown = await all_of(client, f"/runs/{run}/stream?as=run")
            assert shown[-2].data["lines"][-1]["to_state"] == "SUCCEEDED"

    on(database_url, act)


@first_on("sqlite")
def test_a_stream_ends_when_its_key_ends_and_when_the_service_stops(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "CHECK_SECONDS", 0.05)

    async def act(stage: Stage) -> None:
        await stage.publish(GATED)
        key, other = await stage.key(), await stage.key("read", owner="bob")
        async with stage.serving(key) as client:
            run = (await client.post("/runs", json={"workflow": "gated"})).json()["run_id"]
            async with listening(client, f"/runs/{run}/stream", Authorization=f"Bearer {other}") as events:
                await anext(events)
                assert (await client.delete(f"/api-keys/{other.split('_')[1]}")).status_code == 200
                async with asyncio.timeout(30):
                    assert [one async for one in events] == []
            async with listening(client, f"/runs/{run}/stream") as events:
                await anext(events)
                stage.app.service.stopping.set()
                async with asyncio.timeout(30):
                    assert [one async for one in events] == []

    on(database_url, act)


@first_on("sqlite")
def test_a_silent_stream_has_heartbeats(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "CHECK_SECONDS", 0.02)
    monkeypatch.setattr(stream, "HEARTBEAT_SECONDS", 0.02)

    async def act(stage: Stage) -> None:
        await stage.publish(GATED)
        async with stage.serving(await stage.key()) as client:
            run = (await client.post("/runs", json={"workflow": "gated"})).json()["run_id"]
            async with client.stream("GET", f"/runs/{run}/stream") as answer:
                lines = answer.aiter_lines()
                assert await anext(lines) == "retry: 1000"
                beats = 0
                while beats < 2:
                    beats += await anext(lines) == ": still there"

    on(database_url, act)


def test_a_stream_of_another_tenant_or_with_a_wrong_id_is_refused_before_it_begins(database_url: str) -> None:
    async def act(stage: Stage) -> None:
        await stage.publish(HELLO)
        async with stage.client(await stage.key()) as client:
            run = (await client.post("/runs", json={"workflow": "hello"})).json()["run_id"]
            wrong = {"Last-Event-ID": "yesterday"}
            told(await client.get(f"/runs/{run}/stream", headers=wrong), 400, "invalid_input")
            told(await client.get(f"/as/run/runs/{run}/events?since_id=x"), 400, "invalid_input")
        async with stage.client(await stage.key(tenant=RIVAL)) as rival:
            told(await rival.get(f"/runs/{run}/stream"), 404, "not_found")

    on(database_url, act)


@first_on("sqlite")
def test_many_listeners_of_one_run_share_one_poll(database_url: str) -> None:
    async def act(stage: Stage) -> None:
        await stage.publish(GATED)
        async with stage.serving(await stage.key()) as client:
            run = (await client.post("/runs", json={"workflow": "gated"})).json()["run_id"]
            asked: list[int] = []
            polled = asyncio.Event()
            read = stage.engine.store.read_states

            async def counted(keys: object) -> object:
                asked.append(len(keys))  # type: ignore[arg-type]
                polled.set()
                return await read(keys)  # type: ignore[arg-type]

            stage.engine.store.read_states = counted  # type: ignore[method-assign, assignment]
            listeners = [asyncio.create_task(all_of(client, f"/runs/{run}/stream")) for _ in range(30)]
            await polled.wait()
            await client.post(f"/runs/{run}/cancel")
            found = await asyncio.gather(*listeners)
            assert {one[-1].event for one in found} == {"end"}
            assert len({str(one) for one in found}) == 1
            assert set(asked) == {1}

    on(database_url, act)
