"""Under load and with a broken database: refusals that say so, nothing acknowledged that is not stored."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import resource
import socket
from functools import reduce
from pathlib import Path

import pytest

from stepkeep.api import protocol, requests, server
from stepkeep.api.app import create_app
from stepkeep.api.load import (
    BOUNDS,
    LATEST_REFUSAL_SECONDS,
    REFUSAL_SECONDS,
    RESUMED_TURNS,
    SHARED_REST_TIMES,
    SHARED_SECONDS,
    SHARED_TURNS,
    FairTurns,
    HttpMeasures,
    Load,
    LoadBound,
    Seat,
    Share,
)
from stepkeep.cli.streams import JsonFormatter
from stepkeep.engine import AsyncEngine
from stepkeep.store.connect import connect
from stepkeep_lab.postgres import PostgresServer, StopMode, execute
from tests.api.stage import GATED, HELLO, RIVAL, Stage, handlers, on, told
from tests.databases import migrate_now, migrated_file
from tests.suites import first_on


@first_on("sqlite")
async def test_a_request_beyond_the_bound_is_refused_at_once_and_counted(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(HELLO)
        async with stage.client(await stage.key()) as client:
            load = stage.app.service.load
            load.bounds["requests"] = LoadBound(0, 1, 1)  # its key is read before
            refused = await client.get("/runs")
            told(refused, 503, "overloaded")
            assert refused.headers["retry-after"] == "1"
            assert (await client.get("/healthz")).status_code == 200
            assert (await client.get("/readyz")).status_code == 200
            load.bounds["requests"] = LoadBound(1, 1, 1)
            assert (await client.get("/runs")).status_code == 200
            assert stage.app.service.measures.refused == {"requests": 1}
            assert stage.app.service.measures.in_flight == 0


@first_on("sqlite")
@pytest.mark.parametrize("parser", ["PythonProtocol", "NativeProtocol"])
async def test_headers_that_arrive_too_slowly_end_the_connection_and_nobody_else_waits(
    database_url: str, monkeypatch: pytest.MonkeyPatch, parser: str
) -> None:
    monkeypatch.setattr(protocol, "HEADER_SECONDS", 0.3)
    monkeypatch.setattr(server, "Protocol", getattr(protocol, parser))

    async with on(database_url) as stage, stage.serving() as client:
        host, port = client.base_url.host, client.base_url.port
        slow = [await asyncio.open_connection(host, port) for _ in range(20)]
        for _, writer in slow:
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        again, kept = await asyncio.open_connection(host, port)
        kept.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz HTTP/1.1\r\nX-Half: ")
        assert (await client.get("/healthz")).status_code == 200
        async with asyncio.timeout(20):
            for reader, writer in slow:
                assert await reader.read() == b""
                writer.close()
            answer = await again.read()
        assert answer.count(b"HTTP/1.1 200") == 1
        kept.close()


PARSERS = pytest.mark.parametrize("parser", ["PythonProtocol", "NativeProtocol"])
UNREAD = b"POST /session HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"


@first_on("sqlite")
@PARSERS
async def test_bodies_that_do_not_arrive_take_no_place_of_others(
    database_url: str, monkeypatch: pytest.MonkeyPatch, parser: str
) -> None:
    monkeypatch.setattr(server, "Protocol", getattr(protocol, parser))

    async with on(database_url) as stage:
        load = stage.app.service.load
        load.bounds |= {"requests": LoadBound(10, 10, 10), "bodies": LoadBound(20, 15, 12)}
        async with stage.serving(await stage.key()) as client:
            host, port = client.base_url.host, client.base_url.port
            idle = [await asyncio.open_connection(host, port) for _ in range(13)]
            for _, writer in idle:
                writer.write(UNREAD)
            refused = await asyncio.wait_for(first_answer([reader for reader, _ in idle]), 20)
            assert refused.startswith(b"HTTP/1.1 429 ")
            assert load.taken("bodies") == load.taken("bodies", "address 127.0.0.1") == 12
            assert (await client.get("/runs")).status_code == 200
            assert (await client.post("/workflows/check", json={"workflow": "a"})).status_code == 200
            own = await stage.key(owner="bob")
            mine = [await asyncio.open_connection(host, port) for _ in range(3)]
            for _, writer in mine:
                writer.write(UNREAD.replace(b"/session", b"/runs").replace(b"Host: x", b"Host: x\r\n" + bearer(own)))
            async with asyncio.timeout(20):
                while load.taken("bodies", "tenant acme") < 3:  # noqa: ASYNC110 - the service sets no event
                    await asyncio.sleep(0.01)
            for _, writer in idle + mine:
                writer.close()


def bearer(key: str) -> bytes:
    return b"Authorization: Bearer " + key.encode()


async def first_answer(readers: list[asyncio.StreamReader]) -> bytes:
    done, others = await asyncio.wait(
        [asyncio.create_task(one.readline()) for one in readers], return_when=asyncio.FIRST_COMPLETED
    )
    for one in others:
        one.cancel()
    return done.pop().result()


async def test_long_polls_of_one_key_take_no_place_of_another(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(GATED)
        load = stage.app.service.load
        load.bounds |= {"requests": LoadBound(4, 4, 4), "waits": LoadBound(12, 10, 6)}
        async with stage.client(await stage.key()) as client, stage.client(await stage.key(owner="bob")) as bob:
            run = (await client.post("/runs", json={"workflow": "gated"})).json()["run_id"]
            polls = [asyncio.create_task(client.get(f"/runs/{run}/result?wait=30")) for _ in range(6)]
            async with asyncio.timeout(20):
                while load.taken("waits") < 6:  # noqa: ASYNC110 - the service sets no event
                    await asyncio.sleep(0.01)
            assert load.taken("requests") == 0
            refused = told(await client.get(f"/runs/{run}/result?wait=30"), 429, "quota_exceeded")
            assert refused["quota"] == "waits"
            assert "6 waits under way" in refused["detail"]
            assert (await client.get(f"/runs/{run}/result")).status_code == 200
            assert (await bob.get(f"/runs/{run}/result?wait=0.01")).status_code == 200
            assert (await client.post("/runs", json={"workflow": "gated"})).status_code == 201
            assert (await client.post("/runs?wait=1", json={"workflow": "gated"})).status_code == 429
            await bob.post(f"/runs/{run}/cancel")
            assert {one.status_code for one in await asyncio.gather(*polls)} == {200}
            assert load._taken == {}


@first_on("sqlite")
async def test_streams_have_a_bound_for_each_key_and_tenant(database_url: str) -> None:
    async with on(database_url) as stage:
        load = stage.app.service.load
        load.bounds["streams"] = LoadBound(4, 3, 2)
        key, rival = await stage.key(), await stage.key(tenant=RIVAL)
        async with stage.serving(key) as client:
            bob, other = (
                {"Authorization": f"Bearer {await stage.key(owner='bob')}"},
                {"Authorization": f"Bearer {rival}"},
            )
            async with contextlib.AsyncExitStack() as streams:

                async def opened(headers: dict[str, str]) -> int:
                    answer = await streams.enter_async_context(client.stream("GET", "/stream", headers=headers))
                    return answer.status_code

                assert [await opened({}) for _ in range(3)] == [200, 200, 429], "of the key"
                assert [await opened(bob) for _ in range(2)] == [200, 429], "of the tenant"
                assert [await opened(other) for _ in range(2)] == [200, 503], "of the process"
                assert load.taken("requests") == 0
            async with asyncio.timeout(20):
                while load._taken:  # noqa: ASYNC110 - the service sets no event
                    await asyncio.sleep(0.01)


@first_on("sqlite")
@PARSERS
async def test_a_body_that_drips_is_cut_and_its_connection_ends_whatever_was_answered(
    database_url: str, monkeypatch: pytest.MonkeyPatch, parser: str
) -> None:
    monkeypatch.setattr(server, "Protocol", getattr(protocol, parser))
    monkeypatch.setattr(protocol, "LINGER_SECONDS", 0.3)
    monkeypatch.setattr(requests, "FIRST_SECONDS", 0.3)

    async with on(database_url) as stage:
        key = bearer(await stage.key())
        async with stage.serving() as client:
            host, port = client.base_url.host, client.base_url.port
            for given, status in ((b"", 401), (b"\r\n" + key, 408)):
                reader, writer = await asyncio.open_connection(host, port)
                writer.write(UNREAD.replace(b"/session", b"/runs").replace(b"Host: x", b"Host: x" + given))
                async with asyncio.timeout(20):
                    assert (await reader.readline()).startswith(b"HTTP/1.1 %d " % status)
                    with contextlib.suppress(ConnectionError):
                        while not reader.at_eof():
                            writer.write(b" ")
                            await asyncio.sleep(0.02)
                            with contextlib.suppress(TimeoutError):
                                await asyncio.wait_for(reader.read(1000), 0.02)
                writer.close()
            # A body whose end comes in time leaves the connection open.
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(UNREAD.replace(b"/session", b"/runs"))
            async with asyncio.timeout(20):
                assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")
                writer.write(b" " * 100 + b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                assert b"HTTP/1.1 200 " in await reader.read()
            writer.close()


@first_on("sqlite")
@PARSERS
async def test_idle_connections_make_room_for_new_ones(
    database_url: str, monkeypatch: pytest.MonkeyPatch, parser: str
) -> None:
    monkeypatch.setattr(server, "Protocol", getattr(protocol, parser))
    monkeypatch.setattr(protocol, "most_connections", lambda: 8)

    async with on(database_url) as stage, stage.serving() as client, asyncio.timeout(20):
        idle = []
        for _ in range(30):
            reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
            writer.write(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
            idle.append((reader, writer))
        assert (await client.get("/healthz")).status_code == 200
        with contextlib.suppress(ConnectionError):
            await idle[0][0].read()
        assert idle[0][0].at_eof() or idle[0][0].exception()
        for _, writer in idle:
            writer.close()


def test_bounds_fit_the_open_files_of_the_process() -> None:
    load = Load(HttpMeasures(dict))
    load.fit(800)
    assert load.bounds["streams"] == LoadBound(200, 100, 50)
    load.fit(1_000_000)
    assert load.bounds == BOUNDS


@first_on("sqlite")
async def test_a_client_that_does_not_read_its_answer_holds_up_nobody(database_url: str) -> None:
    async with on(database_url) as stage, stage.serving(await stage.key()) as client:
        host, port = client.base_url.host, client.base_url.port
        lazy = []
        for _ in range(20):
            one = socket.create_connection((host, port))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            one.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 3)
            lazy.append(one)
        async with asyncio.timeout(20):
            for _ in range(20):
                assert (await client.get("/runs")).status_code == 200
        for one in lazy:
            one.close()


@first_on("sqlite")
async def test_a_request_is_one_line_with_its_template_and_its_id_is_in_every_problem(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stepkeep.api")
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logging.getLogger("stepkeep.api").addHandler(handler)

    try:
        async with on(database_url) as stage, stage.client(await stage.key()) as client:
            run = "01a1e12c-57d6-75bf-abba-e99e88c4e41f"
            missing = await client.get(f"/runs/{run}?as=run", headers={"X-Request-Id": "mine-7"})
            assert told(missing, 404, "not_found")["request_id"] == "mine-7" == missing.headers["x-request-id"]
            own = await client.get("/no/such/secret-address")
            assert told(own, 404, "not_found")["request_id"] == own.headers["x-request-id"]
    finally:
        logging.getLogger("stepkeep.api").removeHandler(handler)
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first["message"].startswith("GET /runs/{run_id} 404 ")
    assert {name: first[name] for name in ("request", "method", "route", "status", "tenant", "actor", "run")} == {
        "request": "mine-7",
        "method": "GET",
        "route": "/runs/{run_id}",
        "status": 404,
        "tenant": "acme",
        "actor": "ann",
        "run": "01a1e12c-57d6-75bf-abba-e99e88c4e41f",
    }
    assert first["duration_ms"] > 0
    assert second["route"] == "(none)"
    assert "secret-address" not in stream.getvalue()


async def test_readiness_tells_the_truth_about_a_server_that_is_away_and_back() -> None:
    async def act(server: PostgresServer, url: str) -> None:
        async with AsyncEngine(url, actor="service", registry=handlers()) as engine:
            stage = Stage(url, engine)
            await stage.publish(HELLO)
            async with stage.client(await stage.key()) as client:
                assert (await client.get("/readyz")).status_code == 200
                server._halt(StopMode.IMMEDIATE)
                away = await client.get("/readyz")
                told(away, 503, "store_unavailable")
                told(await client.post("/runs", json={"workflow": "hello"}), 503, "store_unavailable")
                assert (await client.get("/healthz")).status_code == 200
                server.start()
                async with asyncio.timeout(30):
                    while (await client.post("/runs", json={"workflow": "hello"})).status_code != 201:  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
                assert (await client.get("/readyz")).status_code == 200

    from tests.conftest import UNSYNCED

    with PostgresServer(template=migrate_now, settings=UNSYNCED) as server, server.fresh_database() as url:
        await act(server, url)


@pytest.mark.proof
async def test_readiness_tells_the_truth_about_a_server_that_only_reads() -> None:
    database = "only_reads"

    async def act(server: PostgresServer, url: str) -> None:
        async with AsyncEngine(url, actor="service", registry=handlers()) as engine:
            stage = Stage(url, engine)
            await stage.publish(HELLO)
            async with stage.client(await stage.key()) as client:
                assert (await client.get("/readyz")).status_code == 200
                assert (await client.post("/runs", json={"workflow": "hello"})).status_code == 201
                for setting, status, created in (("on", 503, 503), ("off", 200, 201)):
                    # As after a failover to a standby, or by hand. It counts for new connections.
                    execute(server.dsn(), f"alter database {database} set default_transaction_read_only = {setting}")
                    server.restart()
                    async with asyncio.timeout(30):
                        while (await client.get("/readyz")).status_code != status:  # noqa: ASYNC110
                            await asyncio.sleep(0.05)
                    tried = await client.post("/runs", json={"workflow": "hello"})
                    assert tried.status_code == created, tried.text
                    assert (await client.get("/readyz")).status_code == status
                    assert (await client.get("/healthz")).status_code == 200
                assert len((await client.get("/runs")).json()["runs"]) == 2

    from tests.conftest import UNSYNCED

    with PostgresServer(template=migrate_now, settings=UNSYNCED) as server:
        await act(server, server.create_database(database))


async def test_a_database_without_room_is_told_by_requests_and_readiness_until_there_is_room(tmp_path: Path) -> None:
    async with on(migrated_file(tmp_path / "s.db")) as stage:
        await stage.publish(HELLO)
        async with stage.client(await stage.key()) as client:
            assert (await client.post("/runs", json={"workflow": "hello"})).status_code == 201
            assert (await client.get("/readyz")).status_code == 200
            before = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "s.db-wal").stat().st_size, before[1]))
            try:
                full = await client.post("/runs", json={"workflow": "hello"})
                assert full.status_code == 503, full.text
                assert full.headers["retry-after"]
                assert (await client.get("/readyz")).status_code == 503
                assert (await client.get("/runs")).status_code == 200
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, before)
            assert (await client.post("/runs", json={"workflow": "hello"})).status_code == 201
            assert (await client.get("/readyz")).status_code == 200
            assert len((await client.get("/runs")).json()["runs"]) == 2


async def test_what_was_acknowledged_survives_a_crash_of_the_database_under_load() -> None:
    async def act(server: PostgresServer, url: str) -> None:
        acknowledged: dict[str, str] = {}
        async with AsyncEngine(url, actor="service", registry=handlers()) as engine:
            stage = Stage(url, engine)
            await stage.publish(HELLO)
            stage.app = create_app(engine)
            async with stage.client(await stage.key()) as client:

                async def starts(number: int) -> None:
                    for turn in range(40):
                        key = f"{number}-{turn}"
                        for _ in range(400):
                            answer = await client.post(
                                "/runs", json={"workflow": "hello"}, headers={"Idempotency-Key": key}
                            )
                            if answer.status_code in (200, 201):
                                acknowledged[key] = answer.json()["run_id"]
                                break
                            assert answer.status_code in (503, 409), answer.text
                            assert answer.headers["retry-after"]
                            await asyncio.sleep(0.05)

                async def crash() -> None:
                    while len(acknowledged) < 60:  # noqa: ASYNC110 - the load sets no event
                        await asyncio.sleep(0.005)
                    await asyncio.to_thread(server.restart, StopMode.IMMEDIATE)

                async with asyncio.timeout(120):
                    await asyncio.gather(crash(), *(starts(number) for number in range(8)))
        assert len(acknowledged) == 320
        store = connect(url)
        await store.open()
        try:
            counted = sum((await store.count_runs("acme")).values())
            there = await store.read_states([("acme", run) for run in acknowledged.values()])
        finally:
            await store.close()
        assert len(there) == len(set(acknowledged.values())) == counted == 320

    with PostgresServer(template=migrate_now) as server, server.fresh_database() as url:
        await act(server, url)


async def test_while_two_tenants_have_requests_each_has_a_few_turns_at_once() -> None:
    now = [0.0]
    turns = FairTurns(lambda: now[0])
    acme, rival = Share("acme", SHARED_TURNS), Share("rival", SHARED_TURNS)
    for _ in range(SHARED_TURNS + 20):
        await turns.take(acme)
    for _ in range(SHARED_TURNS + 20):
        turns.end(acme)
    await turns.take(rival)
    for _ in range(SHARED_TURNS):
        await turns.take(acme)
    late = [asyncio.create_task(turns.take(acme)) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(one.done() for one in late)
    await turns.take(rival)
    turns.end(rival)
    late[0].cancel()
    turns.end(acme)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [one.done() for one in late] == [True, True, False], "the next in order has the turn"
    now[0] += SHARED_SECONDS
    turns.end(acme)
    await late[1]
    await late[2]
    for _ in range(SHARED_TURNS):
        turns.end(acme)
    assert turns._active == {rival: 1}
    assert turns._waiting == {}


async def test_refusals_of_a_tenant_beside_others_are_told_one_after_the_other() -> None:
    now = [0.0]
    turns = FairTurns(lambda: now[0])
    await turns.take(Share("wild", SHARED_TURNS))
    assert [turns.refusal_in("wild") for _ in range(3)] == [0.0, 0.0, 0.0], "nobody else is there"
    assert turns.rest_times("wild") == 0.0
    await turns.take(Share("calm", SHARED_TURNS))
    assert turns.rest_times("wild") == SHARED_REST_TIMES
    told = [turns.refusal_in("wild") for _ in range(3)]
    assert told == pytest.approx([0.0, REFUSAL_SECONDS, 2 * REFUSAL_SECONDS])
    assert turns.refusal_in("calm") == 0.0
    assert max(turns.refusal_in("wild") for _ in range(1_000)) == LATEST_REFUSAL_SECONDS
    now[0] = LATEST_REFUSAL_SECONDS
    assert turns.refusal_in("wild") < 2 * REFUSAL_SECONDS, "what was told late counts no longer"
    now[0] += SHARED_SECONDS
    assert turns.refusal_in("wild") == 0.0


async def test_a_refused_request_waits_in_no_place_of_others() -> None:
    load = Load(HttpMeasures(dict))
    load.bounds["refused"] = LoadBound(1, 1, 1)
    await load.turns.take(Share("calm", SHARED_TURNS))
    for _ in range(1_000):
        load.turns.refusal_in("wild")
    seats = [load.seat("/runs", "") for _ in range(2)]
    for seat in seats:
        assert seat is not None
        await seat.take_turn("wild")
        seat.known("wild", None)
    first, second = (asyncio.create_task(seat.refuse()) for seat in seats if seat)
    await second
    assert not first.done()
    assert load.taken("requests") == load.taken("arriving") == 0
    assert load.turns._active == {Share("calm", SHARED_TURNS): 1}
    first.cancel()
    for seat in seats:
        if seat is not None:
            seat.leave()
    assert load._taken == {}


async def test_a_request_that_waits_has_no_turn_and_needs_one_to_go_on() -> None:
    load = Load(HttpMeasures(dict))
    turns, resumed = load.turns, Share("acme", RESUMED_TURNS)
    await turns.take(Share("rival", SHARED_TURNS))
    seats = [load.seat("/runs", "") for _ in range(RESUMED_TURNS + 3)]
    woken = asyncio.Event()

    async def rest(seat: Seat, *, moves: bool) -> None:
        await seat.take_turn("acme")
        seat.known("acme", None)
        async with seat.moved("bodies") if moves else seat.resting():
            await woken.wait()

    waits = [asyncio.create_task(rest(seat, moves=bool(at % 2))) for at, seat in enumerate(seats) if seat]
    while load.taken("bodies") < len(seats) // 2:  # noqa: ASYNC110 - nothing tells it
        await asyncio.sleep(0)
    assert turns._active == {Share("rival", SHARED_TURNS): 1}, "more than a tenant has turns can wait"
    woken.set()
    for _ in range(20):
        await asyncio.sleep(0)
    assert turns._active[resumed] == RESUMED_TURNS
    assert sum(not one.done() for one in waits) == 3
    await turns.take(Share("rival", SHARED_TURNS))
    for seat, one in zip(seats, waits, strict=True):
        if seat is not None:
            await one
            seat.leave()
    assert turns._active == {Share("rival", SHARED_TURNS): 2}
    assert load._taken == {}


async def test_what_goes_on_after_the_end_of_its_request_takes_no_turn() -> None:
    load = Load(HttpMeasures(dict))
    seat = load.seat("/runs", "")
    assert seat is not None
    await seat.take_turn("acme")
    async with seat.resting():
        seat.leave()
    assert load.turns._active == {}


@first_on("sqlite")
async def test_a_tenant_without_a_turn_waits_after_its_body_and_another_is_answered(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(HELLO)
        await stage.publish(HELLO, tenant=RIVAL)
        turns, resumed = stage.app.service.load.turns, Share("acme", RESUMED_TURNS)
        start = {"workflow": "hello"}
        async with stage.client(await stage.key()) as client, stage.client(await stage.key(tenant=RIVAL)) as rival:
            assert (await client.get("/runs")).status_code == (await rival.get("/runs")).status_code == 200
            for _ in range(RESUMED_TURNS):
                await turns.take(resumed)
            late = asyncio.create_task(client.post("/runs", json=start))
            async with asyncio.timeout(20):
                while not turns._waiting.get(resumed):  # noqa: ASYNC110 - the service sets no event
                    await asyncio.sleep(0.01)
            assert (await rival.post("/runs", json=start)).status_code == 201
            assert not late.done()
            for _ in range(RESUMED_TURNS):
                turns.end(resumed)
            assert (await late).status_code == 201
            assert turns._active == {}


async def test_a_large_payload_that_cannot_be_stored_is_refused_as_a_small_one_is(tmp_path: Path) -> None:
    async with on(migrated_file(tmp_path / "a.db")) as stage:
        await stage.publish(HELLO)
        async with stage.client(await stage.key()) as client:
            details = []
            for size in (1, 100_000):
                given = {"text": "x" * size, "deep": reduce(lambda inner, _: [inner], range(66), 1)}
                refused = await client.post("/runs", json={"workflow": "hello", "input": given})
                details.append(told(refused, 400, "invalid_input")["detail"])
            assert details[0] == details[1]
            assert "nested deeper" in details[0]
