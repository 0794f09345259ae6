"""HTTP steps against a real server on the loopback, and the addresses that they may not reach (faults 4.2, SSRF)."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.workbench import until
from tests.worker.loopback import Server
from tests.worker.making import RUN, a_job, handler_job, outcome_of

from stepkeep.definition.python.registry import Registry
from stepkeep.kernel.definition import Completion, Http
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.outcomes import Completed, Failed
from stepkeep.kernel.machine.states import Category
from stepkeep.worker.attempts.prepared import PreparedSteps
from stepkeep.worker.attempts.runner import PooledRunner
from stepkeep.worker.executors.http import HttpPolicy
from stepkeep.worker.settings import Settings

OPEN = HttpPolicy(allow=("127.0.0.0/8", "::1", "localhost"))


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def call(
    url: str, method: str = "GET", *, policy: HttpPolicy | None = None, token: str | None = None, **fields: Any
) -> Any:
    http = Http(method=method, url=url, headers=fields.pop("headers", {}), body=fields.pop("body", None))
    settings = Settings(http=policy or OPEN)
    job = a_job(http, settings=settings, **fields)
    job.completion_token = token
    outcome = outcome_of(job, settings)
    return msgspec.json.decode(outcome.output) if isinstance(outcome, Completed) and outcome.output else outcome


def test_a_call_carries_its_body_its_headers_and_the_same_key_on_every_attempt(server: Server) -> None:
    server.answers["/charge"] = (201, {"content-type": "application/json", "x-internal": "1"}, b'{"id": 7}')
    for attempts in (0, 1):
        found = call(
            server.url("/charge"),
            "POST",
            headers={"Authorization": "Bearer x"},
            body={"amount": 5},
            claim={"attempts": attempts},
        )
        assert (found["status"], found["body"]) == (201, {"id": 7})
        assert found["headers"]["content-type"] == "application/json"
        assert "x-internal" not in found["headers"]
    first, second = ({name.lower(): value for name, value in seen["headers"].items()} for seen in server.requests)
    assert server.requests[0]["body"] == json.dumps({"amount": 5}, separators=(",", ":"))
    assert first["authorization"] == "Bearer x"
    assert first["content-type"] == "application/json"
    assert first["idempotency-key"] == second["idempotency-key"] == f"{RUN}:charge"
    assert (first["stepkeep-attempt"], second["stepkeep-attempt"]) == ("1", "2")


def test_without_a_body_of_its_own_a_call_sends_the_steps_inputs(server: Server) -> None:
    call(server.url(), "PUT", inputs={"a": 1})
    assert json.loads(server.requests[0]["body"]) == {"a": 1}


def test_a_step_completed_by_hand_sends_its_token(server: Server) -> None:
    call(server.url(), "POST", completion=Completion.MANUAL, token="t-1")
    assert {k.lower(): v for k, v in server.requests[0]["headers"].items()}["stepkeep-completion-token"] == "t-1"


@pytest.mark.parametrize(
    ("status", "category", "delay"),
    [
        (408, "transient", 9), (425, "transient", 9), (429, "transient", 9),
        (500, "transient", 9), (503, "transient", 9),
        (401, "auth", None), (403, "auth", None), (409, "conflict", None), (400, "validation", None),
        (404, "validation", None), (302, "validation", None),
    ],
)  # fmt: skip
def test_a_status_says_what_its_failure_means(server: Server, status: int, category: str, delay: int | None) -> None:
    server.answers["/"] = (status, {"Retry-After": "9", "Location": server.url("/elsewhere")}, b"because")
    outcome = call(server.url("/"))
    assert isinstance(outcome, Failed)
    assert outcome.category == category
    assert outcome.delay == (None if delay is None else delay * 1_000_000)
    assert str(status) in outcome.error
    assert [seen["path"] for seen in server.requests] == ["/"]


def test_nobody_listening_is_transient() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        outcome = call(f"http://127.0.0.1:{port}/a?key=CANARY")
    assert isinstance(outcome, Failed)
    assert outcome.category is Category.TRANSIENT
    assert outcome.error == f"GET http://127.0.0.1:{port}/a: no connection: Connection refused"


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "gopher://x/", "http://", "/relative", "http://[::1", "not a url"]
)
def test_what_is_no_http_url_fails_for_good(url: str) -> None:
    outcome = call(url)
    assert isinstance(outcome, Failed)
    assert (outcome.category, outcome.final) == (Category.VALIDATION, True)


def test_a_response_without_a_bound_is_cut_off_and_refused(server: Server) -> None:
    server.answers["/"] = (200, {}, b"x" * 5000)
    outcome = call(server.url(), policy=HttpPolicy(max_response=1000, allow_internal=True))
    assert isinstance(outcome, Failed)
    assert "larger than 1000 bytes" in outcome.error


def test_a_body_that_is_no_text_or_no_json_is_made_storable(server: Server) -> None:
    server.answers["/"] = (200, {"content-type": "application/json"}, b"{broken \x00\xff")
    assert call(server.url())["body"] == "{broken \ufffd\ufffd"


def test_proxies_of_the_environment_are_not_used(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert call(server.url())["status"] == 200


# -- what an attempt leaves behind -------------------------------------------------------------------------------------
async def test_cookies_of_one_attempt_are_not_sent_by_the_next(server: Server) -> None:
    server.answers["/cookie"] = (200, {"Set-Cookie": "session=CANARY; Path=/"}, b"{}")
    settings = Settings(http=OPEN, concurrency=1)
    codes = PreparedSteps(Registry(), settings)
    jobs = [a_job(Http(method="GET", url=server.url(path)), codes=codes) for path in ("/cookie", "/other", "/cookie")]
    assert all(isinstance(each, Completed) for each in await one_after_the_other(jobs, settings))
    assert [seen["path"] for seen in server.requests] == ["/cookie", "/other", "/cookie"]
    assert [seen["headers"].get("cookie") for seen in server.requests] == [None, None, None]


async def test_credentials_of_one_attempts_url_are_not_sent_by_the_next(server: Server) -> None:
    settings = Settings(http=OPEN, concurrency=1)
    codes = PreparedSteps(Registry(), settings)
    urls = [f"http://user:CANARY@127.0.0.1:{server.port}/", server.url("/")]
    jobs = [a_job(Http(method="GET", url=url), codes=codes) for url in urls]
    assert all(isinstance(each, Completed) for each in await one_after_the_other(jobs, settings))
    first, second = (seen["headers"].get("authorization") for seen in server.requests)
    assert first == "Basic dXNlcjpDQU5BUlk="
    assert second is None


async def test_every_attempt_has_a_connection_of_its_own(server: Server) -> None:
    settings = Settings(http=OPEN, concurrency=1)
    codes = PreparedSteps(Registry(), settings)
    jobs = [a_job(Http(method="GET", url=server.url()), codes=codes) for _ in range(3)]
    assert all(isinstance(each, Completed) for each in await one_after_the_other(jobs, settings))
    assert len({seen["peer"] for seen in server.requests}) == 3
    assert {seen["headers"]["connection"] for seen in server.requests} == {"close"}


def test_passwords_of_the_environment_are_not_used(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login user password CANARY\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert call(server.url())["status"] == 200
    assert "authorization" not in server.requests[0]["headers"]


async def one_after_the_other(jobs: list[Any], settings: Settings) -> list[Any]:
    """Run jobs on one runner, so that they share what a worker's jobs share."""
    runner = PooledRunner(settings)
    found: asyncio.Queue[Any] = asyncio.Queue()
    runner.open(found.put_nowait)
    try:
        collected = []
        for job in jobs:
            runner.start([job])
            async with asyncio.timeout(30):
                collected += [outcome for _, outcome in await found.get()]
        return collected
    finally:
        runner.close()


# -- secrets -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"Authorization": "Bearer CANARY\n"}, "the header Authorization has a value with a line break"),
        ({"Authorization": "Bearer CANARY\r\nX-Evil: 1"}, "the header Authorization has a value with a line break"),
        ({"Authorization": "Bearer CANARY\x00"}, "the header Authorization has a value with a line break"),
        ({"Authorization": "Bearer CANARY "}, "the header Authorization has a value that begins or ends with a space"),
        ({"Authorization": "Bearer CANARY é"}, "the header Authorization has a value that is not plain ASCII"),
        ({"Author ization": "CANARY"}, "is no name of a header"),
        ({"Host": "CANARY"}, "the header Host is set by the client itself"),
        ({"content-length": "CANARY"}, "the header content-length is set by the client itself"),
        ({"Transfer-Encoding": "CANARY"}, "is set by the client itself"),
        ({"Connection": "CANARY"}, "is set by the client itself"),
        ({"Upgrade": "CANARY"}, "is set by the client itself"),
        ({"A": "1", "a": "CANARY"}, "the header a is given twice"),
    ],
)
def test_a_header_that_cannot_be_sent_fails_for_good_and_is_named_without_its_value(
    server: Server, headers: dict[str, str], said: str
) -> None:
    outcome = call(server.url("/?key=CANARY"), headers=headers)
    assert isinstance(outcome, Failed)
    assert (outcome.category, outcome.final) == (Category.VALIDATION, True)
    assert said in outcome.error
    assert "CANARY" not in outcome.error
    assert server.requests == []


def test_a_rendered_header_is_held_to_the_same_rules(server: Server) -> None:
    headers = {"Authorization": "Bearer ${{ input.token }}"}
    outcome = call(server.url(), headers=headers, given={"token": "CANARY\n"})
    assert isinstance(outcome, Failed)
    assert (outcome.category, outcome.final) == (Category.VALIDATION, True)
    assert "CANARY" not in outcome.error


FAULTS = {
    "garbage": b"CANARY this is no HTTP\r\n\r\n",
    "cut": b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nx",
    "nothing": b"",
    "gzip": b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 6\r\n\r\nCANARY",
    "header": b"HTTP/1.1 200 OK\r\nbad header CANARY\r\n\r\n",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_no_failure_of_the_exchange_shows_more_than_scheme_host_and_path(
    fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with RawServer(FAULTS[fault]) as port:
        outcome = call(
            f"http://user:CANARY@127.0.0.1:{port}/a/b?api_key=CANARY#CANARY",
            "POST",
            headers={"Authorization": "Bearer CANARY", "X-Other": "CANARY"},
            body={"secret": "CANARY"},
        )
    assert isinstance(outcome, Failed)
    assert outcome.category in (Category.TRANSIENT, Category.EXTERNAL)
    assert outcome.error.startswith(f"POST http://127.0.0.1:{port}/a/b: ")
    assert "CANARY" not in outcome.error
    assert "CANARY" not in caplog.text


@pytest.mark.parametrize(
    "url",
    [
        "http://user:CANARY@127.0.0.1:99999/?key=CANARY",
        "http://user:CANARY@127.0.0.1:0/",
        "http://user:CANARY@127.0.0.1:port/",
        "http://user:CANARY@[::1/",
        "http://user:CAN\nCANARY@127.0.0.1/",
        "http://user:CANARY@/",
        "ftp://user:CANARY@127.0.0.1/",
        "CANARY",
        "http://user:CANARY@xn--a.example:x/",
        "http://user:CANARY@127.0.0.1.999/",
        "http://999.0.0.1/?key=CANARY",
    ],
)
def test_a_url_that_cannot_be_called_is_not_quoted_and_never_retried(url: str) -> None:
    outcome = call(url)
    assert isinstance(outcome, Failed)
    assert (outcome.category, outcome.final) in {(Category.VALIDATION, True), (Category.TRANSIENT, False)}
    assert (outcome.category is Category.TRANSIENT) == ("cannot be resolved" in outcome.error)
    assert "CANARY" not in outcome.error


def test_a_port_that_does_not_exist_is_named() -> None:
    outcome = call("http://127.0.0.1:99999/")
    assert isinstance(outcome, Failed)
    assert (outcome.category, outcome.final) == (Category.VALIDATION, True)
    assert "there is no port 99999" in outcome.error


def test_a_server_that_quotes_the_secrets_it_refuses_does_not_get_them_recorded(server: Server) -> None:
    server.answers["/a?api_key=QUERY-CANARY"] = (
        401,
        {},
        b"bad: HEADER-CANARY, QUERY-CANARY, URL-CANARY, COOKIE-CANARY, TOKEN-CANARY; " + b"x" * 2000,
    )
    outcome = call(
        f"http://user:URL-CANARY@127.0.0.1:{server.port}/a?api_key=QUERY-CANARY",
        headers={"Authorization": "Bearer HEADER-CANARY", "Cookie": "COOKIE-CANARY"},
        completion=Completion.MANUAL,
        token="TOKEN-CANARY",
    )
    assert isinstance(outcome, Failed)
    assert "answered 401: bad: ***, ***, ***, ***, ***; xxx" in outcome.error
    assert "CANARY" not in outcome.error
    assert len(outcome.error) < 700


class RawServer:
    """A server that reads a request (`until` these bytes have come) and answers with others."""

    def __init__(self, answer: bytes, until: bytes = b'{"secret":"CANARY"}') -> None:
        self._answer, self._until = answer, until
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> int:
        self._thread.start()
        return int(self._socket.getsockname()[1])

    def __exit__(self, *_: object) -> None:
        self._thread.join(10)
        self._socket.close()

    def _serve(self) -> None:
        connection, _ = self._socket.accept()
        with connection:
            seen = b""
            while self._until not in seen:
                seen += connection.recv(65536)
            connection.sendall(self._answer)


# -- addresses ---------------------------------------------------------------------------------------------------------
CLOSED = HttpPolicy()


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0.0.0.0", "0", "127.0.0.1.",
        "127.0.0.1..", "0x7f.1", "017700000001", "0x7f.0x0.0x0.0x1", "127.0.1", "0.0.0.0.", "LOCALHOST", "localhost.",
        "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]", "[::ffff:0:127.0.0.1]",
        "[::1%25lo]", "[fe80::1%25lo]", "①②⑦.⓪.⓪.①", "%31%32%37.0.0.1", "127.0.0.1%00", "127.0.0.1\\@example.com",
        "[::1]", "[::]", "[::ffff:127.0.0.1]", "[0:0:0:0:0:ffff:7f00:1]", "user:pass@127.0.0.1", "127。0。0。1",
    ],
)  # fmt: skip
def test_no_spelling_of_the_loopback_is_reached_where_internal_targets_are_closed(server: Server, host: str) -> None:
    outcome = call(f"http://{host}:{server.port}/", policy=CLOSED)
    assert isinstance(outcome, Failed)
    assert server.requests == []
    assert outcome.category in (Category.GOVERNANCE, Category.VALIDATION, Category.TRANSIENT)


def test_only_listed_ports_are_reached(server: Server) -> None:
    outcome = call(server.url(), policy=HttpPolicy(ports=(80, 443)))
    assert isinstance(outcome, Failed)
    assert outcome.category is Category.GOVERNANCE
    assert server.requests == []


# Addresses that DNS may give, without a DNS server: the resolver is the one part that cannot be had for real here.
def resolver(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    asked: list[str] = []

    def getaddrinfo(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        asked.append(host)
        found = answers[min(len(asked), len(answers)) - 1]
        return [
            (socket.AF_INET6 if ":" in each else socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port))
            for each in found
        ]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


def test_a_name_is_resolved_once_and_its_connection_goes_to_the_address_that_was_judged(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = resolver(monkeypatch, ["127.0.0.1"], ["192.0.2.1"])
    found = call(f"http://shop.example:{server.port}/x", policy=HttpPolicy(allow=("127.0.0.1/32",)))
    assert found["status"] == 200
    assert asked == ["shop.example"]
    assert server.requests[0]["headers"]["host"] == f"shop.example:{server.port}"


def test_tls_is_asked_for_the_name_and_not_for_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with RawServer(b"", until=b"shop.example") as port:
        resolver(monkeypatch, ["127.0.0.1"])
        outcome = call(f"https://SHOP.example.:{port}/x?key=CANARY", policy=OPEN)
    assert isinstance(outcome, Failed)
    assert outcome.category is Category.TRANSIENT
    assert outcome.error.startswith(f"GET https://shop.example.:{port}/x: no connection")


@pytest.mark.parametrize("answers", [["127.0.0.1"], ["93.184.216.34", "127.0.0.1"], ["::1"], ["::ffff:7f00:1"]])
def test_a_public_name_that_leads_inside_is_refused_even_by_one_of_its_addresses(
    server: Server, monkeypatch: pytest.MonkeyPatch, answers: list[str]
) -> None:
    resolver(monkeypatch, answers)
    outcome = call(f"http://shop.example:{server.port}/x?key=CANARY", policy=CLOSED)
    assert isinstance(outcome, Failed)
    assert (outcome.category, outcome.final) == (Category.GOVERNANCE, True)
    assert "--http-allow" in outcome.error
    assert "CANARY" not in outcome.error
    assert server.requests == []


async def test_names_are_resolved_while_a_handler_keeps_the_threads_of_the_event_loop_busy(server: Server) -> None:
    over = threading.Event()

    async def greedy() -> str:
        await asyncio.gather(*(asyncio.to_thread(over.wait, 60) for _ in range(100)))
        return "done"

    settings = Settings(http=OPEN, concurrency=8)
    calling = a_job(Http(method="GET", url=f"http://localhost:{server.port}/"), settings=settings)

    async def both() -> Any:
        busy = handler_job(greedy)
        runner = PooledRunner(settings)
        ended: asyncio.Queue[Any] = asyncio.Queue()
        runner.open(ended.put_nowait)
        try:
            runner.start([busy])
            await until(lambda: busy.begun)
            runner.start([calling])
            async with asyncio.timeout(20):
                [(first, outcome)] = await ended.get()
            assert first is calling
            over.set()
            async with asyncio.timeout(20):
                [(second, _)] = await ended.get()
            assert second is busy
            return outcome
        finally:
            over.set()
            runner.close()

    assert isinstance(await both(), Completed)


def test_the_next_address_of_a_name_is_tried_where_one_takes_no_connection(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolver(monkeypatch, ["::1", "127.0.0.1"])
    assert call(f"http://shop.example:{server.port}/x", policy=OPEN)["status"] == 200
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "entry", ["", "http://localhost", "localhost:0", "10.0.0.0/99", "a b", "*.example.com", "256.1.1.1", "2130706433"]
)
def test_what_is_no_host_cannot_be_allowed(entry: str) -> None:
    with pytest.raises(InvalidInput, match="HTTP steps can be allowed to reach"):
        PreparedSteps(Registry(), Settings(http=HttpPolicy(allow=(entry,))))
