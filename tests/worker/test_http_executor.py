"""HTTP steps against a real server on the loopback, and the addresses that they may not reach (faults 4.2, SSRF)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import pytest
from tests.worker.making import RUN, a_job, outcome_of

from stepkeep.kernel.definition import Completion, Http
from stepkeep.kernel.outcomes import Completed, Failed
from stepkeep.kernel.states import Category
from stepkeep.worker.executors.addresses import is_public
from stepkeep.worker.executors.http import HttpPolicy
from stepkeep.worker.settings import Settings


class Recorder(BaseHTTPRequestHandler):
    requests: list[dict[str, Any]]

    def answer(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length)
        self.server.requests.append(  # type: ignore[attr-defined]
            {"method": self.command, "path": self.path, "headers": dict(self.headers.items()), "body": body.decode()}
        )
        status, headers, content = self.server.answers.get(self.path, (200, {}, b"{}"))  # type: ignore[attr-defined]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = answer  # noqa: N815 - the standard library's names

    def log_message(self, *_: object) -> None: ...


class Server:
    def __init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
        self.requests: list[dict[str, Any]] = []
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self._server.requests, self._server.answers = self.requests, self.answers  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def call(
    url: str, method: str = "GET", *, policy: HttpPolicy | None = None, token: str | None = None, **fields: Any
) -> Any:
    http = Http(method=method, url=url, headers=fields.pop("headers", {}), body=fields.pop("body", None))
    settings = Settings(http=policy or HttpPolicy())
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


def test_nobody_listening_is_transient(server: Server) -> None:
    url = server.url()
    server.close()
    server._thread = threading.Thread(target=int)
    server._thread.start()
    server._server.shutdown = lambda: None  # type: ignore[method-assign]
    outcome = call(url)
    assert isinstance(outcome, Failed)
    assert outcome.category is Category.TRANSIENT


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "gopher://x/", "http://", "/relative", "http://[::1", "not a url"]
)
def test_what_is_no_http_url_fails_for_good(url: str) -> None:
    outcome = call(url)
    assert isinstance(outcome, Failed)
    assert (outcome.category, outcome.final) == (Category.VALIDATION, True)


def test_a_response_without_a_bound_is_cut_off_and_refused(server: Server) -> None:
    server.answers["/"] = (200, {}, b"x" * 5000)
    outcome = call(server.url(), policy=HttpPolicy(max_response=1000))
    assert isinstance(outcome, Failed)
    assert "larger than 1000 bytes" in outcome.error


def test_a_body_that_is_no_text_or_no_json_is_made_storable(server: Server) -> None:
    server.answers["/"] = (200, {"content-type": "application/json"}, b"{broken \x00\xff")
    assert call(server.url())["body"] == "{broken \ufffd\ufffd"


def test_proxies_of_the_environment_are_not_used(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert call(server.url())["status"] == 200


# -- addresses ---------------------------------------------------------------------------------------------------------
CLOSED = HttpPolicy(allow_internal=False)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0.0.0.0", "0", "127.0.0.1.",
        "[::1]", "[::]", "[::ffff:127.0.0.1]", "[0:0:0:0:0:ffff:7f00:1]", "user:pass@127.0.0.1", "127。0。0。1",
    ],
)  # fmt: skip
def test_no_spelling_of_the_loopback_is_reached_where_internal_targets_are_closed(server: Server, host: str) -> None:
    outcome = call(f"http://{host}:{server.port}/", policy=CLOSED)
    assert isinstance(outcome, Failed)
    assert server.requests == []
    assert outcome.category in (Category.GOVERNANCE, Category.VALIDATION, Category.TRANSIENT)


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.1", "172.16.3.4", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "255.255.255.255",
        "224.0.0.1", "198.18.0.1", "192.0.2.1", "240.0.0.1", "::1", "::", "fe80::1", "fe80::1%eth0",
        "fc00::1", "ff02::1",
        "::ffff:10.0.0.1", "::ffff:a9fe:a9fe", "64:ff9b::a9fe:a9fe", "64:ff9b::7f00:1", "2002:7f00:1::",
        "2002:a9fe:a9fe::1",
        "2001:db8::1", "2001:0:7f00:1::", "nonsense", "",
    ],
)  # fmt: skip
def test_an_address_that_is_not_public_is_known_as_such(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["93.184.216.34", "8.8.8.8", "2606:4700:4700::1111", "64:ff9b::808:808"])
def test_a_public_address_is_known_as_such(address: str) -> None:
    assert is_public(address)


def test_only_listed_ports_are_reached(server: Server) -> None:
    outcome = call(server.url(), policy=HttpPolicy(ports=(80, 443)))
    assert isinstance(outcome, Failed)
    assert outcome.category is Category.GOVERNANCE
    assert server.requests == []


def test_the_connection_goes_to_the_address_that_was_judged(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async def judged(host: str, port: int) -> str:
        assert host == "shop.example"
        return "127.0.0.1"

    monkeypatch.setattr("stepkeep.worker.executors.http.vetted", judged)
    assert call(f"http://shop.example:{server.port}/x", policy=CLOSED)["status"] == 200
    assert server.requests[0]["headers"]["host"] == f"shop.example:{server.port}"
