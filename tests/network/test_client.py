"""The guarded client against real servers on the loopback: pinned addresses, bounded answers, typed failures."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import socket
import ssl
import subprocess
import threading
import tracemalloc
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.network.raw_server import Listener, answering

from stepkeep.network import failures
from stepkeep.network.allowing import AllowList
from stepkeep.network.client import GuardedClient, HttpAnswer
from stepkeep.network.guard import Guard, Reach

LOOPBACK = Reach(allow=AllowList.of(("127.0.0.0/8", "::1")))


class Names:
    """A resolver at the guard's seam: each question gets the next answer."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers, self.asked = answers, [""][:0]

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        return self.answers[min(len(self.asked), len(self.answers)) - 1]


def ask(
    url: str, method: str = "GET", *, reach: Reach = LOOPBACK, names: Names | None = None, **more: Any
) -> HttpAnswer:
    limits = {key: more.pop(key) for key in ("max_answer", "seconds", "connect_seconds", "tls") if key in more}

    async def asking() -> HttpAnswer:
        client = GuardedClient(Guard(reach, resolve=names), **limits)
        try:
            return await client.send(method, url, **more)
        finally:
            await client.aclose()

    return asyncio.run(asking())


def plain(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def test_a_request_goes_to_the_checked_address_with_the_name_in_its_host() -> None:
    names = Names(["127.0.0.1"], ["192.0.2.1"])
    with Listener(answering(plain(b"hello", "x-a: 1"))) as server:
        url = f"http://shop.example:{server.port}/a/b?c=d"
        answer = ask(url, "post", names=names, headers={"X-B": "2"}, content=b"body")
    assert (answer.status, answer.body, answer.complete, answer.headers["x-a"]) == (200, b"hello", True, "1")
    assert names.asked == ["shop.example"]
    head, _, body = server.received.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /a/b?c=d HTTP/1.1"
    assert f"host: shop.example:{server.port}" in [line.lower() for line in lines]
    assert body == b"body"


def test_an_answer_is_not_judged_and_a_redirect_is_not_followed() -> None:
    with Listener(answering(plain(b"", "location: http://127.0.0.1:1/", status="302 Found"))) as server:
        answer = ask(f"http://127.0.0.1:{server.port}/")
    assert (answer.status, answer.headers["location"]) == (302, "http://127.0.0.1:1/")
    assert server.connections == 1


async def test_the_allow_list_of_one_request_opens_nothing_for_the_next() -> None:
    async def asking(port: int) -> None:
        client = GuardedClient(Guard(Reach()))
        url = f"http://127.0.0.1:{port}/"
        assert (await client.send("GET", url, also=AllowList.of([f"127.0.0.1:{port}"]))).status == 200
        with pytest.raises(failures.AddressForbidden):
            await client.send("GET", url)
        await client.aclose()

    with Listener(answering(plain(b"x"))) as server:
        await asking(server.port)
    assert server.connections == 1


# -- bounds ------------------------------------------------------------------------------------------------------------
def test_a_body_is_cut_at_the_limit_and_said_to_be_cut() -> None:
    with Listener(answering(plain(b"x" * 5000))) as server:
        answer = ask(f"http://127.0.0.1:{server.port}/", max_answer=1000)
        whole = ask(f"http://127.0.0.1:{server.port}/", max_answer=5000)
    assert (len(answer.body), answer.complete) == (1000, False)
    assert (len(whole.body), whole.complete) == (5000, True)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "x-gzip", "GZIP", "deflate-bare"])
def test_a_packed_body_is_unpacked(encoding: str) -> None:
    said = b"hello " * 1000
    bare = zlib.compressobj(wbits=-15)
    packed = {
        "deflate": zlib.compress(said),
        "deflate-bare": bare.compress(said) + bare.flush(),
    }.get(encoding, gzip.compress(said))
    header = f"content-encoding: {encoding.removesuffix('-bare')}"
    with Listener(answering(plain(packed, header))) as server:
        assert ask(f"http://127.0.0.1:{server.port}/").body == said


@pytest.mark.parametrize("layers", [1, 2])
def test_a_packed_bomb_is_never_held_in_memory(layers: int) -> None:
    bomb = bytes(50_000_000)
    for _ in range(layers):
        bomb = gzip.compress(bomb, 6)
    header = "content-encoding: " + ", ".join(["gzip"] * layers)
    with Listener(answering(plain(bomb, header))) as server:
        tracemalloc.start()
        try:
            if layers == 1:
                assert not ask(f"http://127.0.0.1:{server.port}/", max_answer=10_000).complete
            else:
                with pytest.raises(failures.BadAnswer, match="not asked for"):
                    ask(f"http://127.0.0.1:{server.port}/", max_answer=10_000)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert most < 20_000_000


def _drip(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
    while not over.wait(0.02):
        connection.sendall(b"x")


def _drip_headers(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nx-slow: ")
    while not over.wait(0.02):
        connection.sendall(b"x")


def _silence(connection: socket.socket, over: threading.Event) -> None:
    over.wait(10)


@pytest.mark.parametrize("script", [_drip, _drip_headers, _silence])
def test_a_server_that_drips_or_says_nothing_meets_the_limit_of_time(script: Any) -> None:
    with Listener(script) as server, pytest.raises(failures.TooSlow, match=r"within 0\.3 s") as caught:
        ask(f"http://127.0.0.1:{server.port}/", seconds=0.3)
    assert caught.value.may_have_been_served


def test_a_header_without_an_end_is_refused() -> None:
    with (
        Listener(answering(b"HTTP/1.1 200 OK\r\nx: " + b"a" * 1_000_000)) as server,
        pytest.raises(failures.ConnectionBroke),
    ):
        ask(f"http://127.0.0.1:{server.port}/")


# -- failures ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (b"", failures.ConnectionBroke),
        (b"CANARY no HTTP\r\n\r\n", failures.ConnectionBroke),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nx", failures.ConnectionBroke),
        (b"HTTP/1.1 200 OK\r\nbad header CANARY\r\n\r\n", failures.ConnectionBroke),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx", failures.ConnectionBroke),
        (plain(b"CANARY", "content-encoding: gzip"), failures.BadAnswer),
        (plain(b"CANARY", "content-encoding: br"), failures.BadAnswer),
    ],
)
def test_a_broken_answer_is_a_typed_failure_that_quotes_nothing(answer: bytes, failure: type[Exception]) -> None:
    with Listener(answering(answer)) as server, pytest.raises(failure) as caught:
        ask(f"http://127.0.0.1:{server.port}/?key=CANARY", headers={"authorization": "CANARY"})
    assert type(caught.value) is failure
    assert "CANARY" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_nobody_listening_is_no_connection_and_nothing_was_served() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with pytest.raises(failures.NoConnection, match="Connection refused") as caught:
            ask(f"http://127.0.0.1:{port}/")
    assert not caught.value.may_have_been_served


def test_the_next_address_is_tried_where_one_takes_no_connection() -> None:
    with Listener(answering(plain(b"x"))) as server:
        names = Names(["127.0.0.99", "127.0.0.1"])
        assert ask(f"http://shop.example:{server.port}/", names=names).status == 200
    assert server.connections == 1


@pytest.mark.parametrize("names", [Names([]), Names([f"127.0.0.{n}" for n in range(1, 18)]), Names(["no address"])])
def test_a_name_without_a_usable_answer_is_refused(names: Names) -> None:
    with pytest.raises((failures.Unresolved, failures.AddressForbidden)):
        ask("http://shop.example/", names=names)


def test_a_name_that_nobody_knows_is_unresolved() -> None:
    with pytest.raises(failures.Unresolved, match="cannot be resolved"):
        ask("http://nobody.invalid/")


@pytest.mark.parametrize("header", ["Host", "connection", "Content-Length", "transfer-encoding"])
def test_headers_that_frame_a_request_are_refused(header: str) -> None:
    with Listener(answering(plain(b"x"))) as server, pytest.raises(failures.CannotSend, match="set by the client"):
        ask(f"http://127.0.0.1:{server.port}/", headers={header: "1"})
    assert server.received == b""


@pytest.mark.parametrize("headers", [{"x": "a\r\nHost: b"}, {"x\r\ny": "1"}, {"x": "a\x00"}, {"x y": "1"}])
def test_a_header_with_a_line_break_is_not_sent(headers: dict[str, str]) -> None:
    with Listener(answering(plain(b"x"))) as server, pytest.raises(failures.CannotSend):
        ask(f"http://127.0.0.1:{server.port}/", headers=headers)
    assert server.received == b""


def test_a_method_with_a_second_request_in_it_is_not_sent() -> None:
    with Listener(answering(plain(b"x"))) as server, pytest.raises(failures.CannotSend):
        ask(f"http://127.0.0.1:{server.port}/", "GET / HTTP/1.1\r\nHost: evil\r\n\r\nGET")
    assert server.received == b""


# -- TLS ---------------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("needs the program openssl")
    made = tmp_path_factory.mktemp("tls") / "shop.pem"
    written = (
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=shop.example "
        f"-addext subjectAltName=DNS:shop.example -keyout {made} -out {made}.crt"
    )
    subprocess.run([program, *written.split()], check=True, capture_output=True)
    return made


class TlsServer:
    """Serves one certificate, and keeps the names that were asked for."""

    def __init__(self, certificate: Path) -> None:
        self.asked: list[str | None] = []
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(f"{certificate}.crt", certificate)
        self._context.sni_callback = lambda _, name, __: self.asked.append(name)

    def serve(self, listening: socket.socket) -> None:
        connection, _ = listening.accept()
        try:
            with self._context.wrap_socket(connection, server_side=True) as tls:
                tls.recv(65536)
                tls.sendall(plain(b"secret"))
        except OSError:
            connection.close()


@pytest.mark.parametrize(("name", "trusted"), [("shop.example", True), ("other.example", False), ("127.0.0.1", False)])
def test_the_certificate_must_be_for_the_name_although_the_connection_goes_to_an_address(
    certificate: Path, name: str, trusted: bool
) -> None:
    tls = ssl.create_default_context(cafile=f"{certificate}.crt")
    server = TlsServer(certificate)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.serve, args=(listening,), daemon=True)
        thread.start()
        url = f"https://{name}:{listening.getsockname()[1]}/"
        if trusted:
            assert ask(url, names=Names(["127.0.0.1"]), tls=tls).body == b"secret"
            assert server.asked == ["shop.example"]
        else:
            with pytest.raises(failures.NoConnection, match="certificate was refused"):
                ask(url, names=Names(["127.0.0.1"]), tls=tls)
        thread.join(10)
