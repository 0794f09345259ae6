"""The service as a process: it says when it is ready, describes itself, serves at once and stops without a loss."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from stepkeep.api.access import OPEN, ROUTES
from stepkeep.store.connect import connect
from tests.api.stage import HELLO, Stage, on, told
from tests.databases import migrated_file
from tests.suites import first_on, in_proof

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Start]:
    """Starts `stepkeep …` in an empty directory; what still runs at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **options: object) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-m", "stepkeep", *arguments],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={name: value for name, value in os.environ.items() if not name.startswith("STEPKEEP_")},
            **options,  # type: ignore[call-overload]
        )
        started.append(child)
        return child

    yield start
    for child in started:
        child.kill()
        child.communicate()


def said(child: subprocess.Popen[str]) -> dict[str, str]:
    """The object that a service prints once it accepts connections."""
    assert child.stdout is not None
    text = ""
    while not text.endswith("\n}\n"):
        line = child.stdout.readline()
        assert line, child.stderr and child.stderr.read()
        text += line
    found: dict[str, dict[str, str]] = json.loads(text)
    return found["service"]


async def test_it_is_ready_when_the_database_is_and_not_when_it_stops(database_url: str) -> None:
    async with on(database_url) as stage, stage.client() as client:
        ready = (await client.get("/readyz")).json()
        assert ready["status"] == "ready"
        assert ready["database"] == type(connect(database_url)).__name__.removesuffix("Store").lower()
        assert (await client.get("/version")).json()["version"]
        stage.app.service.stopping.set()
        answer = await client.get("/readyz")
        told(answer, 503, "stopping")
        assert answer.headers["connection"] == "close"
        assert (await client.get("/healthz")).status_code == 200


@first_on("sqlite")
async def test_the_document_has_every_route_with_its_scopes_and_a_stable_name(database_url: str) -> None:
    async with on(database_url) as stage:
        async with stage.client() as client:
            document = (await client.get("/openapi.json")).json()
        assert document["openapi"].startswith("3.1")
        there = {
            f"{method.upper()} {path}": operation
            for path, operations in document["paths"].items()
            for method, operation in operations.items()
        }
        assert set(there) == set(ROUTES)
        names = [operation["operationId"] for operation in there.values()]
        assert len(set(names)) == len(names)
        assert all(name.replace("_", "").isalpha() for name in names), "a name that is made from a path is not stable"
        for route, operation in there.items():
            assert operation["summary"], route
            assert (operation["security"] == []) is (ROUTES[route] == OPEN)
            for status, answer in operation["responses"].items():
                if status.startswith(("4", "5")):
                    assert list(answer["content"]) == ["application/problem+json"], route


def test_dev_in_an_empty_directory_serves_with_a_worker_and_a_key(program: Start, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "import stepkeep as sk\n@sk.step('greet')\ndef greet(name: str) -> str:\n    return f'Hello, {name}'\n"
    )
    (tmp_path / "hello.yaml").write_text(
        "workflow: hello\ntimeout: 1h\nsteps: [{name: greet, uses: greet, with: {name: '${{ input.name }}'}}]\n"
    )
    service = program("dev", "--port", "0", "--app", "app.py", "--json")
    told_ = said(service)
    published = program("publish", "hello.yaml", "--handlers-elsewhere")
    assert published.wait() == 0
    with httpx2.Client(base_url=told_["address"], headers={"Authorization": f"Bearer {told_['key']}"}) as client:
        run = client.post("/runs", json={"workflow": "hello", "input": {"name": "Ada"}}).json()["run_id"]
        while (found := client.get(f"/runs/{run}").json()["run"])["state"] not in ("succeeded", "failed"):
            pass
        assert found["output"] == "Hello, Ada"
        assert found["created_by"] == "dev"
    pages, _, code = told_["pages"].partition("#code=")
    assert (pages, told_["key"] in told_["pages"]) == (f"{told_['address']}/ui", False)
    with httpx2.Client(base_url=told_["address"]) as client:
        assert client.post("/session/link", json={"code": code}).json()["principal"] == "dev"
    key_file = tmp_path / ".stepkeep" / "dev.key"
    assert key_file.read_text().strip() == told_["key"]
    assert key_file.stat().st_mode & 0o077 == 0
    service.send_signal(signal.SIGTERM)
    _, err = service.communicate(timeout=30)
    assert service.returncode == 0
    assert told_["key"] not in err
    again = program("dev", "--port", "0", "--json")
    assert said(again)["key"] == told_["key"]


async def test_a_restart_on_a_passed_socket_fails_no_request(program: Start, tmp_path: Path) -> None:
    url = migrated_file(tmp_path / "stepkeep.db")
    keys: list[str] = []

    async def prepare(stage: Stage) -> None:
        await stage.publish(HELLO)
        keys.append(await stage.key())

    async with on(url) as stage:
        await prepare(stage)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        fd, port = listener.fileno(), listener.getsockname()[1]
        first = program("serve", "--fd", str(fd), "--db", url, "--json", "--log-level", "error", pass_fds=[fd])
        said(first)
        stop, statuses = threading.Event(), []

        def load(number: int) -> None:
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                client.headers["Authorization"] = f"Bearer {keys[0]}"
                sent = 0
                while not stop.is_set():
                    sent += 1
                    headers = {"Idempotency-Key": f"{number}-{sent}"}
                    statuses.append(client.post("/runs", json={"workflow": "hello"}, headers=headers).status_code)

        threads = [threading.Thread(target=load, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        second = program("serve", "--fd", str(fd), "--db", url, "--json", "--log-level", "error", pass_fds=[fd])
        said(second)
        before = len(statuses)
        first.send_signal(signal.SIGTERM)
        assert first.wait(60) == 0
        while len(statuses) < before + 40:
            pass
        stop.set()
        for thread in threads:
            thread.join()
    assert set(statuses) == {201}

    async with on(url) as stage, stage.host() as host:
        assert (await host.runs(limit=1))["total"] == min(len(statuses), 1000)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        in_proof(["serve", "--tenant", "acme"], "takes neither --tenant nor --key-file"),
        in_proof(["serve", "--fd", "0"], "is no socket"),
        (["serve", "--host", "256.256.256.256"], "cannot listen"),
        (["dev", "--db", "postgresql://db/x"], "dev is for SQLite"),
    ],
)
def test_what_the_commands_cannot_do_is_refused_at_once(program: Start, arguments: list[str], words: str) -> None:
    with open(os.devnull) as nothing:
        child = program(*arguments, stdin=nothing)
        _, err = child.communicate(timeout=60)
    assert child.returncode == 2
    assert words in err
    assert "Traceback" not in err
