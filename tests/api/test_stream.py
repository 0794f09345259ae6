"""Streams: every entry once, in order; resumed by id; ended by the run, the key or a stop."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

import asyncpg
import pytest

from stepkeep.api import stream
from stepkeep.operations.runs.tailing import Listener, TenantTail
from tests.api.sse import all_of, listening
from tests.api.stage import GATED, HELLO, RIVAL, Stage, on, told
from tests.databases import migrated_file
from tests.suites import first_on, in_proof


async def test_a_stream_tells_every_entry_as_it_comes_and_ends_with_the_run(database_url: str) -> None:
    async with on(database_url) as stage:
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


@first_on("sqlite")
async def test_a_stream_ends_when_its_key_ends_and_when_the_service_stops(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "CHECK_SECONDS", 0.05)

    async with on(database_url) as stage:
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


@first_on("sqlite")
async def test_a_silent_stream_has_heartbeats(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "CHECK_SECONDS", 0.02)
    monkeypatch.setattr(stream, "HEARTBEAT_SECONDS", 0.02)

    async with on(database_url) as stage:
        await stage.publish(GATED)
        async with stage.serving(await stage.key()) as client:
            run = (await client.post("/runs", json={"workflow": "gated"})).json()["run_id"]
            async with client.stream("GET", f"/runs/{run}/stream") as answer:
                lines = answer.aiter_lines()
                assert await anext(lines) == "retry: 1000"
                beats = 0
                while beats < 2:
                    beats += await anext(lines) == ": still there"


async def test_a_stream_of_another_tenant_or_with_a_wrong_id_is_refused_before_it_begins(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(HELLO)
        async with stage.client(await stage.key()) as client:
            run = (await client.post("/runs", json={"workflow": "hello"})).json()["run_id"]
            wrong = {"Last-Event-ID": "yesterday"}
            told(await client.get(f"/runs/{run}/stream", headers=wrong), 400, "invalid_input")
            told(await client.get(f"/as/run/runs/{run}/events?since_id=x"), 400, "invalid_input")
        async with stage.client(await stage.key(tenant=RIVAL)) as rival:
            told(await rival.get(f"/runs/{run}/stream"), 404, "not_found")


@first_on("sqlite")
async def test_many_listeners_of_one_run_share_one_poll(database_url: str) -> None:
    async with on(database_url) as stage:
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


@pytest.mark.parametrize("many", [200, in_proof(2000)])
async def test_thousands_of_streams_hold_up_no_other_client_and_all_end(tmp_path: Path, many: int) -> None:
    """Each is a connection of its own. Four keys have them, a fifth one works beside them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 3 * many:
        pytest.skip("too few files may be open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3 * many), hard))

    try:
        async with on(migrated_file(tmp_path / "streams.db")) as stage:
            await stage.publish(GATED)
            keys = [await stage.key(owner=owner) for owner in ("ann", "bea", "cyd", "dan")]
            async with stage.serving(await stage.key(owner="zoe")) as client, asyncio.timeout(300):
                run = (await client.post("/runs", json={"workflow": "gated"})).json()["run_id"]
                places = asyncio.Semaphore(50)

                async def listen(key: str) -> asyncio.StreamReader:
                    async with places:
                        reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
                        ask = f"GET /runs/{run}/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n"
                        writer.write(ask.encode())
                        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
                        writers.append(writer)
                        return reader

                writers: list[asyncio.StreamWriter] = []
                readers = await asyncio.gather(*(listen(keys[place % len(keys)]) for place in range(many)))
                assert (await client.get(f"/runs/{run}")).status_code == 200
                assert (await client.post(f"/runs/{run}/approve", json={})).status_code == 200
                assert (await client.post(f"/runs/{run}/cancel", json={})).status_code == 200
                await asyncio.gather(*(reader.readuntil(b"event: end") for reader in readers))
                for writer in writers:
                    writer.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_the_stream_of_a_tenant_tells_its_runs_in_order_and_resumes(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(GATED, tenant="default")
        await stage.publish(HELLO, tenant=RIVAL)
        await stage.engine.start_worker()
        key, foreign = await stage.key(tenant="default"), await stage.key(tenant=RIVAL)
        async with stage.serving(key) as client, listening(client, "/stream") as events:
            begin = await anext(events)
            assert (begin.event, begin.data) == ("begin", {"tenant": "default"})
            # Of another tenant nothing is told.
            theirs = {"Authorization": f"Bearer {foreign}"}
            assert (await client.post("/runs", json={"workflow": "hello"}, headers=theirs)).status_code == 201
            runs = [(await client.post("/runs", json={"workflow": "gated"})).json()["run_id"] for _ in range(3)]
            for run in runs:
                await client.post(f"/runs/{run}/approve")
                await client.get(f"/runs/{run}/result?wait=30")
            journals = {run: (await client.get(f"/runs/{run}/journal")).json()["entries"] for run in runs}
            count = sum(map(len, journals.values()))
            got = [await anext(events) for _ in range(count)]
            for run, entries in journals.items():
                mine = [one.data for one in got if one.data["run_id"] == run]
                assert [one["seq"] for one in mine] == [one["seq"] for one in entries]
                assert [one["hash"] for one in mine] == [one["hash"] for one in entries]
                assert mine[-1]["lines"][-1]["to_state"] == "succeeded"
            # From every id on, exactly what follows is told.
            for place, known in enumerate([begin, *got]):
                async with listening(client, "/stream", Last_Event_ID=known.id) as again:
                    assert (await anext(again)).event == "begin"
                    rest = [await anext(again) for _ in range(count - place)]
                    assert [one.data for one in rest] == [one.data for one in got[place:]]
            told(await client.get("/stream", headers={"Last-Event-ID": "yesterday"}), 400, "invalid_input")


@first_on("sqlite")
async def test_a_listener_that_does_not_keep_up_is_cut_off_and_holds_up_no_other(
    database_url: str,
) -> None:
    slow, quick = Listener(3), Listener(3)
    for number in range(5):
        slow.put({"seq": number})
        quick.put({"seq": number})
        assert quick.queue.get_nowait() == {"seq": number}
    assert slow.is_cut
    assert not quick.is_cut
    assert [slow.queue.get_nowait() for _ in range(3)] == [{"seq": 1}, {"seq": 2}, None]

    async def act(stage: Stage) -> None:
        await stage.publish(HELLO)
        async with stage.client(await stage.key()) as client:
            stage.app.service.tailer.most_queued = 3
            listening_ = stage.app.service.tailer.listening("acme")
            async with listening_ as (listener, _):
                cut, put = asyncio.Event(), listener.put

                def noted(entry: dict[str, object]) -> None:
                    put(entry)
                    if listener.is_cut:
                        cut.set()

                listener.put = noted  # type: ignore[method-assign]
                for _ in range(5):
                    await client.post("/runs", json={"workflow": "hello"})
                async with asyncio.timeout(30):
                    await cut.wait()
        await stage.app.service.close()

    async with on(database_url) as stage:
        await act(stage)


@pytest.mark.postgres
async def test_an_entry_that_has_overtaken_the_one_before_it_is_told_after_it(postgres_dsn: str) -> None:
    """A transaction has its number from its first lock, and may write to a run after one with a later number."""
    other = "019b7e2c-5a10-7c3e-9d7b-2f6f0a4c81d5"

    async with on(postgres_dsn) as stage:
        await stage.publish(HELLO, tenant="default")
        await stage.engine.start_worker()
        run = (await stage.engine.start("hello")).run_id
        await stage.engine.wait(run)
        assert len(await stage.engine.store.read_journal("default", run)) >= 3
        server = await asyncpg.connect(postgres_dsn)
        early, late = [await server.fetchval("select pg_current_xact_id()::text::bigint") for _ in range(2)]
        await server.execute(
            "insert into stepkeep.journal (tenant, run_id, seq, at, body, hash, xact) "
            "select tenant, $2::text::uuid, seq, at, body, hash, case seq when 3 then $3::bigint else $4::bigint end "
            "from stepkeep.journal where run_id = $1::text::uuid and seq <= 3 and seq > 1",
            run,
            other,
            early,
            late,
        )
        await server.close()
        found = [one for one in await stage.engine.store.read_tail("default", str(early)) if one.entry.run_id == other]
        assert [(one.entry.seq, one.overtakes) for one in found] == [(3, True), (2, False)]
        tail = TenantTail(stage.engine.transactor, "default", str(early))
        assert [one["seq"] for one in await tail.read() if one["run_id"] == other] == [2, 3]


@pytest.mark.postgres
async def test_nothing_is_told_before_an_older_transaction_has_ended(postgres_dsn: str) -> None:
    async with on(postgres_dsn) as stage:
        await stage.publish(HELLO)
        store = stage.engine.store.for_tenant("acme")
        begin = await store.tail_position()
        server = await asyncpg.connect(postgres_dsn)
        older = server.transaction()
        await older.start()
        await server.fetchval("select pg_current_xact_id()")
        async with stage.client(await stage.key()) as client:
            await client.post("/runs", json={"workflow": "hello"})
        assert await store.read_tail("acme", begin) == []
        assert await store.read_tail("acme", await store.tail_position()) == []
        await older.rollback()
        await server.close()
        assert len(await store.read_tail("acme", begin)) == 1
