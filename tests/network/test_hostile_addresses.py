"""No hostile URL reaches a canary: a real listener on this machine that counts connections and bytes (faults 4.2)."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from tests.network.hostile_addresses import ANSWERS, URLS
from tests.network.raw_server import Listener, answering
from tests.sinks.test_interface import PAID
from tests.worker.making import a_job, outcome_of

from stepkeep.kernel.definition import Http
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.outcomes import Failed
from stepkeep.kernel.machine.states import Category
from stepkeep.network import failures
from stepkeep.network.allowing import AllowList
from stepkeep.network.client import GuardedClient
from stepkeep.network.guard import Guard, Reach
from stepkeep.sinks import webhook
from stepkeep.sinks.interface import SinkContext, SinkFailed, SinkKind
from stepkeep.worker.executors.http import HttpPolicy
from stepkeep.worker.settings import Settings

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
OTHER = "127.0.0.2"
"""A second address of this machine: the allowed server, beside the canary at the others."""


class Canary:
    """Listens on every address of this machine, IPv4 and IPv6, on one port."""

    def __init__(self) -> None:
        self._listener = Listener(answering(OK), socket.AF_INET6, "::")  # dual stack: takes IPv4 too

    def __enter__(self) -> Canary:
        return self

    def __exit__(self, *given: object) -> None:
        self._listener.__exit__(*given)

    @property
    def port(self) -> int:
        return self._listener.port

    @property
    def touched(self) -> tuple[int, bytes]:
        return self._listener.connections, self._listener.received


@pytest.fixture
def canary() -> Iterator[Canary]:
    with Canary() as listening:
        with socket.create_connection(("127.0.0.1", listening.port)) as probe:
            probe.sendall(b"probe")
            assert probe.recv(1)
        assert listening.touched[0] == 1
        yield listening


def at(url: str, port: int) -> str:
    return url.replace("{port}", str(port))


async def send_all(client: GuardedClient, urls: Sequence[str]) -> list[Exception | int]:
    """Send to all, a few at a time: the failure or the status of each."""
    free = asyncio.Semaphore(16)

    async def one(url: str) -> Exception | int:
        async with free:
            try:
                return (await client.send("POST", url, content=b"CANARY", seconds=20)).status
            except failures.RequestFailed as problem:
                return problem

    try:
        return list(await asyncio.gather(*(one(url) for url in urls)))
    finally:
        await client.aclose()


async def test_no_hostile_url_reaches_the_canary(canary: Canary) -> None:
    assert len(set(URLS)) == len(URLS)
    assert len(URLS) >= 150
    urls = [at(url, canary.port) for url in URLS]
    # The port is listed, so that only the address stands between the request and the canary.
    found = await send_all(GuardedClient(Guard(Reach(ports=(80, 443, canary.port)))), urls)
    for url, failure in zip(urls, found, strict=True):
        expected = failures.AddressForbidden | failures.CannotSend | failures.Unresolved
        assert isinstance(failure, expected), (url, failure)
        assert not failure.may_have_been_served
    assert canary.touched == (1, b"probe")


async def test_the_same_urls_do_reach_it_where_everything_is_open(canary: Canary) -> None:
    """The canary can sing: otherwise the test above would prove nothing."""
    local = [url for url in URLS if "127.0.0." in url or "[::" in url or "localhost" in url.lower()]
    urls = [at(url, canary.port) for url in local if url.startswith("http://")]
    found = await send_all(GuardedClient(Guard(Reach(allow_internal=True))), urls)
    assert found.count(200) >= 12
    assert canary.touched[0] >= 13


def test_no_http_step_reaches_the_canary(canary: Canary) -> None:
    settings = Settings(http=HttpPolicy(ports=(80, 443, canary.port)))
    for url in URLS:
        outcome = outcome_of(a_job(Http(method="POST", url=at(url, canary.port)), settings=settings), settings)
        assert isinstance(outcome, Failed), url
        assert outcome.category in (Category.GOVERNANCE, Category.VALIDATION, Category.TRANSIENT), url
        assert outcome.final or "cannot be resolved" in outcome.error, url
    assert canary.touched == (1, b"probe")


SINKS: dict[str, tuple[SinkKind[Any], dict[str, Any]]] = {
    "webhook": (webhook.WEBHOOK, {"secrets": ("HOOK",)}),
    "webhook of a run": (webhook.RUN_WEBHOOK, {}),
}


async def deliver(kind: SinkKind[Any], options: dict[str, Any], reach: Reach) -> str:
    """Why a sink of this kind does not deliver an event; empty if it does."""

    async def secret(name: str) -> str:
        return f"whsec_{base64.b64encode(bytes(32)).decode()}"

    try:
        made = kind.options(**options)
        if kind.check is not None:
            kind.check(made)
        sink = await kind.open(made, SinkContext(name="s", tenant="acme", reach=reach, secret=secret))
        await sink.send(PAID)
    except (SinkFailed, InvalidInput) as problem:
        return str(problem)
    return ""


@pytest.mark.parametrize("sink", SINKS)
async def test_no_sink_that_sends_requests_reaches_the_canary(canary: Canary, sink: str) -> None:
    kind, options = SINKS[sink]

    reach = Reach(ports=(80, 443, canary.port))
    assert all(await asyncio.gather(*(deliver(kind, {**options, "url": at(url, canary.port)}, reach) for url in URLS)))
    assert canary.touched == (1, b"probe")
    sings = deliver(kind, {**options, "url": f"http://127.0.0.1:{canary.port}/"}, Reach(allow_internal=True))
    assert await sings == ""
    assert canary.touched[0] == 2


@pytest.mark.parametrize("sink", SINKS)
async def test_no_redirect_leads_a_sink_to_the_canary(canary: Canary, sink: str) -> None:
    kind, options = SINKS[sink]
    answer = f"HTTP/1.1 307 Go\r\nlocation: http://127.0.0.1:{canary.port}/\r\ncontent-length: 0\r\n\r\n".encode()
    with Listener(answering(answer), host=OTHER) as allowed:
        given = {**options, "url": f"http://{OTHER}:{allowed.port}/"}
        assert "answered 307" in await deliver(kind, given, Reach(allow=AllowList.of([OTHER])))
    assert canary.touched == (1, b"probe")


@pytest.mark.parametrize("name", ANSWERS)
async def test_no_answer_of_a_name_server_leads_to_the_canary(canary: Canary, name: str) -> None:
    asked: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        answers = ANSWERS[host]
        return answers[min(len(asked), len(answers)) - 1]

    guard = Guard(Reach(ports=(canary.port,)), resolve=resolve)
    [failure] = await send_all(GuardedClient(guard), [f"http://{name}:{canary.port}/"])
    assert isinstance(failure, failures.AddressForbidden | failures.Unresolved)
    assert asked == [name]
    assert canary.touched == (1, b"probe")


async def test_a_name_that_changes_its_address_after_the_check_leads_to_the_checked_one(
    canary: Canary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's resolver leads to the allowed server once, and to the canary from then on."""
    asked = []

    def getaddrinfo(host: Any, port: Any, *_: Any, **__: Any) -> list[Any]:
        asked.append(host)
        found = OTHER if len(asked) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (found, port))]

    with Listener(answering(OK), host=OTHER) as allowed:
        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        reach = Reach(allow=AllowList.of([OTHER]))
        url = f"http://shop.example:{allowed.port}/"
        first, second = await send_all(GuardedClient(Guard(reach)), [url, url])
        monkeypatch.undo()
    assert {first, *([] if isinstance(second, int) else [type(second)])} == {200, failures.AddressForbidden}
    assert asked == ["shop.example", "shop.example"]
    assert allowed.connections == 1
    assert canary.touched == (1, b"probe")


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
@pytest.mark.parametrize("location", ["http://127.0.0.1:{port}/", "//[::1]:{port}/", "http://localhost:{port}/"])
async def test_no_redirect_leads_to_the_canary(canary: Canary, status: int, location: str) -> None:
    to = at(location, canary.port)
    answer = f"HTTP/1.1 {status} Go\r\nlocation: {to}\r\nrefresh: 0; url={to}\r\ncontent-length: 0\r\n\r\n".encode()
    with Listener(answering(answer), host=OTHER) as allowed:
        reach = Reach(allow=AllowList.of([OTHER]))
        assert await send_all(GuardedClient(Guard(reach)), [f"http://{OTHER}:{allowed.port}/"]) == [status]
        settings = Settings(http=HttpPolicy(allow=(OTHER,)))
        outcome = await asyncio.to_thread(
            outcome_of, a_job(Http(method="GET", url=f"http://{OTHER}:{allowed.port}/"), settings=settings), settings
        )
    assert isinstance(outcome, Failed)
    assert "redirects are not followed" in outcome.error
    assert canary.touched == (1, b"probe")


@pytest.mark.parametrize("scheme", ["http", "https", "socks5", "socks5h", "socks4"])
async def test_no_proxy_of_the_environment_leads_to_the_canary(
    canary: Canary, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY", "NO_PROXY"):
        value = "" if name == "NO_PROXY" else f"{scheme}://127.0.0.1:{canary.port}"
        monkeypatch.setenv(name, value)
        monkeypatch.setenv(name.lower(), value)
    with Listener(answering(OK), host=OTHER) as allowed:
        urls = [f"http://{OTHER}:{allowed.port}/", f"https://{OTHER}:{allowed.port}/", "http://127.0.0.1/"]
        found = await send_all(GuardedClient(Guard(Reach(allow=AllowList.of([OTHER])))), urls)
    assert found[0] == 200
    assert isinstance(found[1], failures.NoConnection)
    assert isinstance(found[2], failures.AddressForbidden)
    assert canary.touched == (1, b"probe")
