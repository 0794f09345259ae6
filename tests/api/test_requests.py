"""What a client sends is bounded and strict, and every refusal is a problem with a stable type."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from stepkeep.api import problems, requests
from stepkeep.api.requests import MAX_BODY_BYTES
from stepkeep.definition.text.json_text import MAX_DEPTH, strict_json
from stepkeep.kernel.errors import InvalidInput, StepkeepError, Unreachable
from tests.api.stage import HELLO, on, told
from tests.suites import first_on

BAD_JSON: dict[str, bytes] = {
    "no JSON": b"{workflow: hello}",
    "two values": b'{"workflow": "hello"} {}',
    "a duplicate key": b'{"workflow": "hello", "workflow": "other"}',
    "a duplicate key inside": b'{"workflow": "hello", "input": {"a": 1, "a": 2}}',
    "NaN": b'{"workflow": "hello", "input": NaN}',
    "infinity": b'{"workflow": "hello", "input": -Infinity}',
    "a number out of range": b'{"workflow": "hello", "input": 1e999}',
    "a number without end": b'{"workflow": "hello", "input": ' + b"9" * 5000 + b"}",
    "too many levels": b'{"workflow": "hello", "input": ' + b"[" * 100 + b"]" * 100 + b"}",
    "levels without end": b"[" * 200_000,
    "bytes that are no text": b'{"workflow": "\xff"}',
    "half of a surrogate pair": b'{"workflow": "hello", "input": "\\ud800"}',
    "NUL in a name": b'{"workflow": "hel\\u0000lo"}',
    "an unknown field": b'{"workflow": "hello", "colour": "red"}',
    "a missing field": b"{}",
    "another type": b'{"workflow": 7}',
    "a list": b"[]",
    "a text": b'"hello"',
    "nothing": b"",
    "a priority out of range": b'{"workflow": "hello", "priority": 100000000000000000000}',
    "a time without a zone": b'{"workflow": "hello", "at": "2026-01-01T00:00:00"}',
    "a duration that is none": b'{"workflow": "hello", "delay": "soon"}',
    "labels that are no texts": b'{"workflow": "hello", "labels": {"a": 1}}',
    "an unknown workflow": b'{"workflow": "nobodys"}',
}


async def test_every_bad_body_is_refused_with_a_reason(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(HELLO)
        async with stage.client(await stage.key()) as client:
            for what, body in BAD_JSON.items():
                answer = await client.post("/runs", content=body, headers={"Content-Type": "application/json"})
                assert answer.status_code == 400, (what, answer.text)
                assert len(told(answer, 400, "invalid_input")["detail"]) > 10, what
            assert (await client.get("/runs")).json()["runs"] == []


async def test_all_errors_of_a_body_are_told_at_once_without_its_values(database_url: str) -> None:
    async with on(database_url) as stage, stage.client(await stage.key()) as client:
        answer = await client.post("/runs", json={"workflow": 7, "colour": "s3cret", "start_now": "perhaps"})
        found = told(answer, 400, "invalid_input")
        assert {one["at"] for one in found["errors"]} == {"body.workflow", "body.colour", "body.start_now"}
        assert "s3cret" not in answer.text


@first_on("sqlite")
async def test_other_forms_of_bodies_are_refused(database_url: str) -> None:
    async with on(database_url) as stage, stage.client(await stage.key()) as client:
        for headers in (
            {"Content-Type": "application/x-www-form-urlencoded"},
            {"Content-Type": "text/plain"},
            {"Content-Type": "application/json", "Content-Encoding": "gzip"},
            {},
        ):
            told(await client.post("/runs", content=b"{}", headers=headers), 415, "unsupported_media_type")


@first_on("sqlite")
async def test_a_body_is_counted_while_it_streams(database_url: str) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 1 << 30:
            sent += 1 << 16
            yield b" " * (1 << 16)

    async with on(database_url) as stage, stage.client(await stage.key()) as client:
        json_type = {"Content-Type": "application/json"}
        too_long = {**json_type, "Content-Length": str(MAX_BODY_BYTES + 1)}
        told(await client.post("/runs", content=b"{}", headers=too_long), 413, "too_large")
        told(await client.post("/runs", content=b" " * (MAX_BODY_BYTES + 1), headers=json_type), 413, "too_large")
        # ASGITransport passes a streamed body on part by part, as a server does with a chunked one.
        told(await client.post("/runs", content=endless(), headers=json_type), 413, "too_large")
        assert sent <= 2 * MAX_BODY_BYTES


@first_on("sqlite")
async def test_a_client_that_goes_away_in_its_body_is_one_quiet_line(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="stepkeep"):
        async with on(database_url) as stage:
            key = await stage.key()
            async with stage.serving() as client:
                reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
                writer.write(
                    b"POST /runs HTTP/1.1\r\nHost: service\r\nContent-Type: application/json\r\nContent-Length: 500\r\n"
                    b"Authorization: Bearer " + key.encode() + b'\r\n\r\n{"workflow": '
                )
                await writer.drain()
                writer.write_eof()
                await reader.read()
                writer.close()
                assert (await client.get("/healthz")).json() == {"status": "ok"}
    told = [one for one in caplog.records if "/runs" in one.getMessage()]
    assert [one.getMessage().split()[:3] for one in told] == [["POST", "/runs", "408"]]
    assert [one for one in caplog.records if one.levelno >= logging.WARNING or one.exc_info] == []


@first_on("sqlite")
async def test_a_body_is_not_read_before_the_key_is_known(database_url: str) -> None:
    read = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal read
        read += 1
        yield b"{}"

    async with on(database_url) as stage, stage.client() as client:
        told(await client.post("/runs", content=body()), 401, "unauthenticated")
        assert read == 0


@first_on("sqlite")
async def test_headers_and_addresses_are_bounded(database_url: str) -> None:
    async with on(database_url) as stage, stage.client(await stage.key()) as client:
        many = [(f"x-{number}", "a") for number in range(requests.MAX_HEADERS + 1)]
        told(await client.get("/runs", headers=many), 431, "headers_too_large")
        long = {"x-long": "a" * requests.MAX_HEADER_BYTES}
        told(await client.get("/runs", headers=long), 431, "headers_too_large")
        told(await client.get("/runs?text=" + "a" * requests.MAX_TARGET_BYTES), 431, "headers_too_large")


@first_on("sqlite")
async def test_a_parameter_that_is_unknown_twice_there_or_out_of_bounds_is_refused(database_url: str) -> None:
    async with on(database_url) as stage, stage.client(await stage.key()) as client:
        for query in (
            "colour=red",
            "limit=1&limit=2",
            "limit=0",
            "limit=201",
            "limit=many",
            "cursor=nonsense",
            "state=happy",
            "since=yesterday",
            "since=2026-01-01T00:00:00",
            "label=nonsense",
            "as=klingon",
            "as=run&text=a",
        ):
            told(await client.get(f"/runs?{query}"), 400, "invalid_input")
        assert (await client.get("/runs?limit=200&state=failed&state=succeeded")).status_code == 200


@first_on("sqlite")
async def test_addresses_and_methods_that_are_not_there_are_problems(database_url: str) -> None:
    async with on(database_url) as stage, stage.client(await stage.key()) as client:
        told(await client.get("/nothing"), 404, "not_found")
        told(await client.get("/runs/"), 404, "not_found")
        answer = await client.request("PATCH", "/runs")
        told(answer, 405, "method_not_allowed")
        assert answer.headers["allow"] == "GET, POST"


@first_on("sqlite")
async def test_every_answer_has_a_request_id_and_the_security_headers(database_url: str) -> None:
    async with on(database_url) as stage, stage.client() as client:
        for path in ("/healthz", "/nothing", "/runs", "/openapi.json"):
            answer = await client.get(path, headers={"X-Request-Id": "mine-7"})
            assert answer.headers["x-request-id"] == "mine-7"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
            assert answer.headers["cache-control"] == "no-store"
            assert "server" not in answer.headers
        forged = await client.get("/healthz", headers={"X-Request-Id": "a b<script>"})
        assert forged.headers["x-request-id"] != "a b<script>"


def test_every_class_of_error_has_a_row_of_its_own() -> None:
    from stepkeep.kernel import errors

    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.StepkeepError)
    ]
    made = [kind([]) if kind is errors.DefinitionError else kind("x") for kind in kinds]
    codes = {type(one).__name__: problems.kind_of(one) for one in made}
    assert all(kind is not problems.UNEXPECTED for kind in codes.values())
    assert codes["DatabaseGone"].status == 503
    assert codes["PayloadSealed"].status < 600


@first_on("sqlite")
async def test_the_database_going_away_is_503_and_says_nothing_about_it(
    database_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def away(*_: Any, **__: Any) -> None:
        raise Unreachable("postgresql://joe:pw@db.internal is away")

    async def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("secret detail")

    async with on(database_url) as stage, stage.client(await stage.key()) as client:
        await client.get("/runs")
        monkeypatch.setattr(stage.engine.store, "search_runs", away)
        answer = await client.get("/runs")
        told(answer, 503, "store_unavailable")
        assert answer.headers["retry-after"] == "1"
        assert "db.internal" not in answer.text
        # An outage is expected: it is no error of the service.
        assert {one.levelname for one in caplog.records if "store_unavailable" in one.message} == {"WARNING"}
        monkeypatch.setattr(stage.engine.store, "search_runs", broken)
        answer = await client.get("/runs")
        told(answer, 500, "unexpected")
        assert "secret detail" not in answer.text
        assert "secret detail" in caplog.text
        monkeypatch.setattr(stage.engine.store, "status", away)
        told(await client.get("/readyz"), 503, "store_unavailable")
        assert (await client.get("/healthz")).json() == {"status": "ok"}


def test_strict_json_takes_what_json_is() -> None:
    value = {"a": [1, -2.5, True, None, "ü\u2028"], "b": {"a": {}}}
    assert strict_json(json.dumps(value).encode()) == value
    deep: Any = "x"
    for _ in range(MAX_DEPTH):
        deep = [deep]
    assert strict_json(json.dumps(deep).encode()) == deep
    with pytest.raises(InvalidInput, match="nested deeper"):
        strict_json(json.dumps([deep]).encode())
    assert strict_json(b'[1e3, 2.5E-1, 12345678901234567890123, "0e9"]') == [
        1000.0,
        0.25,
        12345678901234567890123,
        "0e9",
    ]
    assert issubclass(InvalidInput, StepkeepError)
