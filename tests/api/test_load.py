"""Under load and with a broken database: refusals that say so, nothing acknowledged that is not stored."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import resource
import socket
from pathlib import Path

import pytest

from stepkeep.api import protocol, server
from stepkeep.api.app import create_app
from stepkeep.cli.inert_log import JsonFormatter
from stepkeep.engine import AsyncEngine
from stepkeep.store.connect import connect
from stepkeep_lab.postgres import PostgresServer, StopMode, execute
from tests.api.stage import HELLO, Stage, handlers, on, told
from tests.databases import migrate_now, migrated_file
from tests.suites import first_on


@first_on("sqlite")
def test_a_request_beyond_the_bound_is_refused_at_once_and_counted(database_url: str) -> None:
    async def act(stage: Stage) -> None:
        await stage.publish(HELLO)
        async with stage.client(await stage.key()) as client:
            stage.app.service.load.most_requests = 0
            refused = await client.get("/runs")
            told(refused, 503, "overloaded")
            assert refused.headers["retry-after"] == "1"
            assert (await client.get("/healthz")).status_code == 200
            assert (await client.get("/readyz")).status_code == 200
            stage.app.service.load.most_requests = 1
            assert (await client.get("/runs")).status_code == 200
            assert stage.app.service.measures.refused == {"requests": 1}
            assert stage.app.service.measures.in_flight == 0

    on(database_url, act)


@first_on("sqlite")
@pytest.mark.parametrize("parser", ["PythonProtocol", "NativeProtocol"])
def test_headers_that_arrive_too_slowly_end_the_connection_and_nobody_else_waits(
    database_url: str, monkeypatch: pytest.MonkeyPatch, parser: str
) -> None:
    monkeypatch.setattr(protocol, "HEADER_SECONDS", 0.3)
    monkeypatch.setattr(server, "Protocol", getattr(protocol, parser))

    async def act(stage: Stage) -> None:
        async with stage.serving() as client:
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

    on(database_url, act)


@first_on("sqlite")
def test_a_client_that_does_not_read_its_answer_holds_up_nobody(database_url: str) -> None:
    async def act(stage: Stage) -> None:
        async with stage.serving(await stage.key()) as client:
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

    on(database_url, act)


@first_on("sqlite")
def test_a_request_is_one_line_with_its_template_and_its_id_is_in_every_problem(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stepkeep.api")
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logging.getLogger("stepkeep.api").addHandler(handler)

    async def act(stage: Stage) -> None:
        async with stage.client(await stage.key()) as client:
            run = "01a1e12c-57d6-75bf-abba-e99e88c4e41f"
            missing = await client.get(f"/runs/{run}?as=run", headers={"X-Request-Id": "mine-7"})
            assert told(missing, 404, "not_found")["request_id"] == "mine-7" == missing.headers["x-request-id"]
            own = await client.get("/no/such/secret-address")
            assert told(own, 404, "not_found")["request_id"] == own.headers["x-request-id"]

    try:
        on(database_url, act)
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


def test_readiness_tells_the_truth_about_a_server_that_is_away_and_back() -> None:
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
        asyncio.run(act(server, url))


@pytest.mark.proof
def test_readiness_tells_the_truth_about_a_server_that_only_reads() -> None:
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
        asyncio.run(act(server, server.create_database(database)))


def test_a_database_without_room_is_told_by_requests_and_readiness_until_there_is_room(tmp_path: Path) -> None:
    async def act(stage: Stage) -> None:
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

    on(migrated_file(tmp_path / "s.db"), act)


def test_what_was_acknowledged_survives_a_crash_of_the_database_under_load() -> None:
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
        asyncio.run(act(server, url))
