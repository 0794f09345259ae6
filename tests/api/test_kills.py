"""The service killed with `kill -9` under load, and replaced under load: what it acknowledged is there, once."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from stepkeep_lab.bench.ground import fresh_ground
from stepkeep_lab.bench.restarts import rolling
from tests.api.stage import HELLO, on
from tests.confined import confine
from tests.databases import migrated_file
from tests.processes import Fleet, Program
from tests.suites import in_proof
from tests.workbench import wait_until


class Site(Fleet):
    """A socket that stays open, and the processes that serve on it."""

    def __init__(self, url: str, folder: Path, serves_as: str | None = None) -> None:
        super().__init__(url, folder)
        self._served = serves_as or url
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(1024)
        self.address = f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def service(self) -> Program:
        fd = self.listener.fileno()
        options = ["--fd", str(fd), "--db", self._served, "--log-level", "error"]
        return self.serve(*options, cwd=self.folder, pass_fds=[fd])[0]

    def __exit__(self, *given: object) -> None:
        super().__exit__(*given)
        self.listener.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(migrated_file(tmp_path / "stepkeep.db"), tmp_path) as made:
        yield made


@pytest.fixture
def confined_site(postgres_dsn: str, tmp_path: Path) -> Iterator[Site]:
    """A service under row-level security. The test itself looks with the owner's eyes."""
    with Site(postgres_dsn, tmp_path, serves_as=confine(postgres_dsn)) as made:
        yield made


async def key_for(url: str) -> str:
    async with on(url) as stage:
        await stage.publish(HELLO)
        return await stage.key()


async def started_runs(url: str) -> set[str]:
    found: set[str] = set()
    async with on(url) as stage, stage.host() as host:
        before = None
        while page := (await host.runs(limit=1000, before=before))["runs"]:
            found.update(one["id"] for one in page)
            before = page[-1]["id"]
    return found


@pytest.mark.parametrize("kills", [1, in_proof(20)])
async def test_a_server_killed_under_load_has_every_run_that_it_acknowledged_once(site: Site, kills: int) -> None:
    await kill_under_load(site, kills)


@pytest.mark.postgres
@pytest.mark.parametrize("kills", [in_proof(1), in_proof(10)])
async def test_a_server_under_row_level_security_is_killed_under_load_and_loses_nothing(
    confined_site: Site, kills: int
) -> None:
    await kill_under_load(confined_site, kills)


async def kill_under_load(site: Site, kills: int) -> None:
    """Kill the service while four clients start runs. Each run that it acknowledged is there, and no other one."""
    key = await key_for(site.url)
    acknowledged: dict[str, str] = {}
    stop = threading.Event()

    def load(number: int) -> None:
        turn = 0
        with httpx2.Client(base_url=site.address, timeout=60, headers={"Authorization": f"Bearer {key}"}) as client:
            while not stop.is_set():
                turn += 1
                name = f"{number}-{turn}"
                while name not in acknowledged:
                    try:
                        answer = client.post("/runs", json={"workflow": "hello"}, headers={"Idempotency-Key": name})
                    except httpx2.TransportError:
                        continue  # the server was killed: the same request again
                    if answer.status_code in (200, 201):
                        acknowledged[name] = answer.json()["run_id"]
                    else:
                        assert answer.status_code in (409, 503), answer.text

    def more() -> None:
        """Let 25 more runs be acknowledged."""
        wanted = len(acknowledged) + 25
        wait_until(lambda: len(acknowledged) >= wanted or not any(thread.is_alive() for thread in threads))
        assert len(acknowledged) >= wanted

    child = site.service()
    threads = [threading.Thread(target=load, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(kills):
            more()
            child.end()
            child = site.service()
        more()
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    runs = await started_runs(site.url)
    assert set(acknowledged.values()) == runs
    assert len(acknowledged) == len(runs)


@pytest.mark.parametrize(("rate", "seconds", "restarts"), [in_proof(60, 3.0, 1), in_proof(500, 20.0, 3)])
async def test_a_rolling_restart_under_load_loses_no_request(rate: int, seconds: float, restarts: int) -> None:
    """`rolling` raises if one is lost. How many a second a machine can do is a benchmark of the same name."""
    with fresh_ground("sqlite", None) as ground:
        found = await rolling(ground, rate=rate, seconds=seconds, clients=16, restarts=restarts)
    print(f"{found['requests_per_second']:.0f} requests a second, p99 {found['p99_ms']:.0f} ms")
    assert found["requests_per_second"] > 1
