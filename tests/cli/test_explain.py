"""Ten ways to stand still: `explain` names each with the command that moves it, and the command does move it."""

from __future__ import annotations

import asyncio
import re
import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepkeep.operations.runs.staffing import MODULE
from stepkeep_lab.postgres import PostgresServer, StopMode
from tests.cli.conftest import HANDLERS, Cli
from tests.cli.test_worker_startup import heard
from tests.store.raw import expire_leases, raw_of
from tests.suites import in_proof
from tests.workbench import wait_until

Start = Callable[..., subprocess.Popen[str]]

ONE_STEP = """
workflow: {name}
timeout: 1h
steps:
  - {{name: label, uses: {uses}, timeout: 1m, {more}}}
"""


def without_times(text: str) -> str:
    """Lengths of time differ from one look to the next."""
    return re.sub(r"\b\d+[dhms]( \d+[hms])?\b", "…", text)


class Town:
    """A database with one run, and what people type about it."""

    def __init__(self, cli: Cli, process: Start, home: Path, url: str) -> None:
        self._cli, self._process, self._home, self.url = cli, process, home, url

    def start(self, name: str, uses: str = "cli.work", more: str = "retry: {max_attempts: 2}", **given: Any) -> str:
        (self._home / f"{name}.yaml").write_text(ONE_STEP.format(name=name, uses=uses, more=more))
        return self.start_file(f"{name}.yaml", **given)

    def start_file(self, file: str, input: str = "{}") -> str:  # noqa: A002 - the option's name
        said = self._cli("start", file, "--input", input, "--db", self.url, "--json")
        return str(said.json["run"]["id"])

    def unserved(self, name: str, uses: str = "cli.work") -> list[str]:
        """What `start` says about steps that no worker could take."""
        (self._home / f"{name}.yaml").write_text(ONE_STEP.format(name=name, uses=uses, more="retry: {max_attempts: 2}"))
        asked = ("start", f"{name}.yaml", "--handlers-elsewhere", "--db", self.url, "--json")
        said: list[str] = self._cli(*asked).json["unserved"]
        return said

    def worker(self, *options: str, app: str = HANDLERS) -> subprocess.Popen[str]:
        before = self._workers()
        child = self._process("worker", "--app", app, "--db", self.url, *options)
        heard(child, "serves with")
        wait_until(lambda: self._workers() > before)
        return child

    def _workers(self) -> int:
        listed = self._cli("workers", "--db", self.url, "--json").json["workers"]
        return sum(worker["version"] is not None for worker in listed)

    def explain(self, *what: str) -> dict[str, Any]:
        said: dict[str, Any] = self._cli("explain", *what, "--db", self.url, "--json").json["explanation"]
        return said

    def told(self, run: str, code: str) -> dict[str, Any]:
        """The most urgent cause, once it is this one: what workers publish arrives a moment after they start."""
        causes: list[dict[str, Any]] = []

        def agree() -> bool:
            """Whether all three commands say the same: a worker may change between two of them."""
            explained = self.explain(run)
            assert not explained["stuck"]
            causes[:] = explained["causes"]
            said = without_times(causes[0]["sentence"])
            return (
                causes[0]["code"] == code
                and said in without_times(self._cli("explain", run, "--db", self.url).out)
                and f"why: {said}" in without_times(self._cli("show", run, "--db", self.url).out)
            )

        wait_until(agree)
        return causes[0]

    def obey(self, command: str) -> subprocess.Popen[str] | None:
        """Type what was printed; a worker goes on in a process of its own."""
        words = shlex.split(command.replace(MODULE, HANDLERS))
        assert words[0] == "stepkeep"
        if words[1] == "worker":
            return self._process(*words[1:])
        assert self._cli(*words[1:]).status in (0, 4)
        return None

    def state(self, run: str) -> str:
        return str(self._cli("show", run, "--db", self.url, "--json").json["run"]["state"])

    def ends(self, run: str) -> None:
        wait_until(lambda: self.state(run) == "succeeded", 60)

    def change(self, statement: str) -> None:
        asyncio.run(raw_of(self.url).execute(statement))


@pytest.fixture(params=["sqlite", in_proof("postgres")])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """These tests start workers as processes. The causes themselves are tested on both stores without processes."""
    return f"sqlite:///{tmp_path}/stepkeep.db" if request.param == "sqlite" else request.getfixturevalue("postgres_dsn")


@pytest.fixture
def town(cli: Cli, process: Start, home: Path, database_url: str) -> Town:
    assert cli("db", "migrate", "--db", database_url).status == 0
    return Town(cli, process, home, database_url)


def test_no_worker(town: Town) -> None:
    run = town.start("alone")
    cause = town.told(run, "no_worker")
    assert "label has been ready for" in cause["sentence"]
    assert "handler cli.work, and no worker is alive" in cause["sentence"]
    town.obey(cause["command"])
    town.ends(run)


@pytest.mark.proof
def test_a_renamed_handler(town: Town, home: Path) -> None:
    (home / "new.py").write_text("import stepkeep as sk\n@sk.step('cli.works')\ndef works() -> None: ...\n")
    old = town.worker()
    old.terminate()
    old.communicate(timeout=60)
    run = town.start("renamed")
    town.worker(app="new.py")
    cause = town.told(run, "no_handler")
    assert "the nearest name is cli.works" in cause["sentence"]
    # The worker that is gone had been given this file, so that the command names it.
    assert f"--app {HANDLERS}" in cause["command"]
    town.obey(cause["command"])
    town.ends(run)


@pytest.mark.proof
def test_start_names_a_handler_that_no_worker_has(town: Town) -> None:
    assert town.unserved("alone") == ["no worker is alive: the run waits until one is started"]
    town.worker()
    (said,) = town.unserved("renamed", uses="cli.wrok")
    assert said.startswith("step label would wait: it needs handler cli.wrok, and no live worker has that handler")
    assert town.unserved("served") == []


def test_a_queue_that_no_worker_serves(town: Town) -> None:
    run = town.start("queued", more="queue: slow")
    town.worker("--queue", "fast")
    cause = town.told(run, "no_queue")
    assert "it is in queue slow, which no live worker serves" in cause["sentence"]
    assert "serves only queue fast" in cause["sentence"]
    assert town.explain("slow")["causes"][0]["code"] == "no_queue"
    town.obey(cause["command"])
    town.ends(run)
    assert town.explain("slow")["causes"][0]["code"] == "empty"


@pytest.mark.proof
def test_a_capability_that_no_worker_has(town: Town) -> None:
    run = town.start("skilled", more="capabilities: [gpu]")
    town.worker()
    cause = town.told(run, "no_capability")
    assert "cli.work with gpu, and no live worker has the capability (1 worker is alive)" in cause["sentence"]
    town.obey(cause["command"])
    town.ends(run)


def test_a_gate_that_waits(town: Town) -> None:
    run = town.start_file("gated.yaml")
    town.worker()
    cause = town.told(run, "approval")
    assert cause["sentence"].startswith("sign-off waits for approval, which ends in 59m")
    chain = town.explain(run, "publish")["causes"]
    assert [link["code"] for link in chain] == ["dependency", "approval"]
    assert chain[0]["sentence"] == "publish waits for sign-off."
    town.obey(cause["command"])
    town.ends(run)


def test_a_message_that_has_not_come(town: Town) -> None:
    run = town.start_file("waiting.yaml")
    cause = town.told(run, "event")
    assert "payment waits for the message paid" in cause["sentence"]
    town.obey(cause["command"])
    town.ends(run)


@pytest.mark.proof
def test_a_pause_before_the_next_attempt(town: Town) -> None:
    run = town.start("paused", "cli.flaky", more="retry: {max_attempts: 3, initial: 50m, max: 50m}")
    town.worker()
    cause = town.told(run, "retry")
    assert "after 1 of 3 attempts (transient: ConnectionError: not yet)" in cause["sentence"]
    assert cause["until"] is not None
    town.change("update steps set due_at = due_at - 3000000000 where state = 'retrying'")
    town.obey(cause["command"])
    assert town.state(run) == "succeeded"


@pytest.mark.proof
def test_a_worker_that_is_dead(town: Town, home: Path) -> None:
    (home / "hold-before").touch()
    run = town.start_file("slow.yaml", input=f'{{"ledger": "{home}/ledger"}}')
    dead = town.worker()
    wait_until(lambda: (home / "ledger").exists())
    dead.kill()
    dead.communicate()
    (home / "hold-before").unlink()
    town.change("update workers set heard_at = heard_at - 60000000")
    cause = town.told(run, "dead_worker")
    expire_leases(town.url)
    assert "which was last heard 1m" in cause["sentence"]
    assert "No other worker is alive." in cause["sentence"]
    assert f"--app {HANDLERS}" in cause["command"]
    town.obey(cause["command"])
    town.ends(run)


@pytest.mark.proof
def test_a_worker_that_is_full(town: Town, home: Path) -> None:
    (home / "hold-before").touch()
    first = town.start_file("slow.yaml", input=f'{{"ledger": "{home}/ledger"}}')
    second = town.start_file("slow.yaml", input=f'{{"ledger": "{home}/ledger"}}')
    town.worker("--concurrency", "1")
    wait_until(lambda: (home / "ledger").exists())
    waiting = next(run for run in (first, second) if town.state(run) == "queued")
    cause = town.told(waiting, "full")
    assert "holds 1 of 1 places" in cause["sentence"]
    helper = town.obey(cause["command"])
    assert helper is not None
    wait_until(lambda: len((home / "ledger").read_text().splitlines()) >= 2)
    (home / "hold-before").unlink()
    town.ends(first)
    town.ends(second)


@pytest.mark.postgres
def test_a_database_that_is_away(
    cli: Cli, process: Start, home: Path, postgres_template: Callable[[str], None]
) -> None:
    with PostgresServer(template=postgres_template) as server, server.fresh_database() as dsn:
        town = Town(cli, process, home, dsn)
        run = town.start("away")
        town.worker()
        town.ends(run)
        server._halt(StopMode.FAST)
        said = cli("explain", run, "--db", dsn)
        assert said.status == 1
        assert "The database does not answer" in said.out
        command = said.out.splitlines()[-1].strip()
        assert cli(*shlex.split(command.replace("***", ""))[1:]).status == 1
        server.start()
        assert cli(*shlex.split(command)[1:]).status == 0
        assert town.explain(run)["causes"][0]["code"] == "finished"


@pytest.mark.proof
def test_a_worker_says_what_it_serves_and_what_it_passes_over(town: Town) -> None:
    town.start("skilled", more="capabilities: [gpu]")
    child = town.worker("--name", "plain")
    worker = town._cli("workers", "--db", town.url, "--json").json["workers"][0]["id"]
    until = time.monotonic() + 30
    while (explained := town.explain("plain"))["causes"][0]["code"] != "serves":
        assert time.monotonic() < until
    assert explained["subject"] == f"worker {worker}"
    assert [cause["code"] for cause in explained["causes"]] == ["serves", "no_capability"]
    child.terminate()
    child.communicate(timeout=60)
    assert town.explain(worker)["causes"][0]["code"] == "finished"
