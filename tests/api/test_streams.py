"""Streams of runs over HTTP: followed from any piece on, by their own tenant alone, and written by remote workers."""

from __future__ import annotations

from typing import Any

import pytest

from stepkeep.client.async_client import AsyncClient
from tests.api.sse import all_of
from tests.api.stage import GATED, RIVAL, on, told
from tests.remote.test_remote_worker import Plain, on_service, start


async def test_a_client_that_comes_back_gets_what_follows(database_url: str) -> None:
    async with on_service(database_url) as (stage, url, client):
        worker = await Plain.registered(client)
        run = await start(client, "flaky")
        [held] = await worker.claim("remote.flaky")
        name = {field: held[field] for field in ("run_id", "no", "fence")}
        for number in range(3):
            part = {"name": "tokens", "start": number, "chunks": [f"t{number}"]}
            assert (await worker.post("streams", {**name, "streams": [part]})).json() == {"written": 1}
        again = await worker.post("streams", {**name, "streams": [{"name": "tokens", "start": 2, "chunks": ["t2"]}]})
        assert again.status_code == 200, "the same again is stored once"
        rest = [{"name": "tokens", "start": 3, "chunks": ["end"]}]
        done = {"kind": "completed", "output": 1}
        answer = await worker.post("report", {"reports": [{**name, "outcome": done, "streams": rest}]})
        assert answer.json()["replies"][0]["accepted"], answer.text
        path = f"/runs/{run}/streams/tokens"
        events = await all_of(client, path)
        assert [one.event for one in events] == ["piece"] * 4 + ["end"]
        assert [chunk for one in events[:-1] for chunk in one.data["chunks"]] == ["t0", "t1", "t2", "end"]
        for place, one in enumerate(events[:-1]):
            later = await all_of(client, path, Last_Event_ID=one.id)
            assert [it.data for it in later] == [it.data for it in events[place + 1 :]]
        async with AsyncClient(url, key=await stage.key("read", owner="eve")) as far:
            assert [piece.chunks async for piece in far.tail(run, "tokens")] == [["t0"], ["t1"], ["t2"], ["end"]]
            assert [one.chunks for one in (await far.streams.list(run)).streams] == [4]
        certificate = (await client.get(f"/runs/{run}/certificate")).json()
        assert certificate["ok"], certificate


@pytest.mark.parametrize(
    ("part", "status"),
    [
        ({"name": "a/b", "chunks": ["x"]}, 400),
        ({"name": "", "chunks": ["x"]}, 400),
        ({"name": "a", "chunks": ["x" * 70_000]}, 400),
        ({"name": "a", "chunks": ["x"], "start": -1}, 400),
        ({"name": "a", "chunks": ["x"], "start": 2**40}, 400),
        ({"name": "a", "chunks": ["x"], "after": "1.0"}, 400),
        ({"name": "a", "chunks": ["x"], "after": "7"}, 400),
        ({"name": "a", "chunks": "x"}, 400),
        ({"name": "a", "chunks": ["x"], "more": 1}, 400),
        ({"name": "a", "chunks": []}, 200),
    ],
)
async def test_hostile_writes_are_refused_and_store_nothing(database_url: str, part: Any, status: int) -> None:
    async with on_service(database_url) as (_stage, _url, client):
        worker = await Plain.registered(client)
        run = await start(client, "flaky")
        [held] = await worker.claim("remote.flaky")
        name = {field: held[field] for field in ("run_id", "no", "fence")}
        assert (await worker.post("streams", {**name, "streams": [part]})).status_code == status
        late = await worker.post("streams", {**name, "fence": 2, "streams": [{"name": "a", "chunks": ["x"]}]})
        assert late.status_code in (400, 409), late.text
        assert (await client.get(f"/runs/{run}/streams")).json()["streams"] == []
        lies = {**name, "outcome": {"kind": "completed"}, "streams": [{"name": "a", "start": 5, "chunks": ["x"]}]}
        refused = await worker.post("report", {"reports": [lies]})
        assert refused.status_code < 500, refused.text


async def test_the_streams_of_another_tenant_are_not_there(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(GATED, tenant="default")
        async with stage.client(await stage.key(tenant="default")) as client:
            run = (await client.post("/runs", json={"workflow": "gated"})).json()["run_id"]
            assert (await client.get(f"/runs/{run}/streams")).json()["streams"] == []
        async with stage.client(await stage.key(tenant=RIVAL)) as rival:
            for path in ("", "/tokens", "/tokens/pieces"):
                told(await rival.get(f"/runs/{run}/streams{path}"), 404, "not_found")
