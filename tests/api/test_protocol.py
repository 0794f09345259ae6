"""Requests that are no HTTP, or that never end, cost a connection and nothing else; both parsers agree."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from stepkeep.api import protocol, server
from tests.api.stage import HELLO, on
from tests.databases import migrated_file

HOST = b"Host: x\r\n"
MUCH = b"x" * (protocol.MAX_INCOMPLETE_BYTES * 6)
CHUNKED = b"POST /session HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"

REQUESTS = {
    "whole": (b"GET /version HTTP/1.1\r\n" + HOST + b"\r\n", 200),
    "an old client": (b"GET /version HTTP/1.0\r\n\r\n", 200),
    "no host": (b"GET /version HTTP/1.1\r\n\r\n", 400),
    "two hosts": (b"GET /version HTTP/1.1\r\n" + HOST * 2 + b"\r\n", 400),
    "a header without end": (b"GET /version HTTP/1.1\r\n" + HOST + b"X-A: " + MUCH, 400),
    "an address without end": (b"GET /" + MUCH, 400),
    "a trailer without end": (CHUNKED + b"2\r\n{}\r\n0\r\nX-A: " + MUCH, 400),
    "two lengths": (b"POST /session HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
    "a space in a name": (b"GET /version HTTP/1.1\r\n" + HOST + b"X A: b\r\n\r\n", 400),
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
    "long headers": (b"GET /version HTTP/1.1\r\n" + HOST + b"X-A: " + MUCH[:40_000] + b"\r\n\r\n", 431),
}


@pytest.mark.parametrize("parser", ["PythonProtocol", "NativeProtocol"])
async def test_what_is_no_request_is_refused_and_the_next_client_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parser: str
) -> None:
    monkeypatch.setattr(server, "Protocol", getattr(protocol, parser))

    async with on(migrated_file(tmp_path / "a.db")) as stage, stage.serving() as client, asyncio.timeout(60):
        for name, (sent, status) in REQUESTS.items():
            reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
            writer.write(sent)
            assert (await reader.readline()).startswith(b"HTTP/1.1 %d " % status), name
            writer.close()
        assert (await client.get("/healthz")).status_code == 200


@pytest.mark.parametrize("parser", ["PythonProtocol", "NativeProtocol"])
async def test_a_trailer_is_no_header_of_its_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parser: str
) -> None:
    monkeypatch.setattr(server, "Protocol", getattr(protocol, parser))

    async with on(migrated_file(tmp_path / "a.db")) as stage:
        await stage.publish(HELLO)
        key = b"Authorization: Bearer " + (await stage.key()).encode() + b"\r\n"
        sent = CHUNKED.replace(b"/session", b"/runs").replace(HOST, HOST + key)
        sent += b'14\r\n{"workflow":"hello"}\r\n0\r\nIdempotency-Key: k\r\n\r\n'
        async with stage.serving() as client, asyncio.timeout(60):
            for _ in range(2):
                reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
                writer.write(sent)
                assert (await reader.readline()).startswith(b"HTTP/1.1 201 ")
                writer.close()
