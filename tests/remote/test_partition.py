"""PostgreSQL, the service and two remote workers in network namespaces; one worker is cut off, and healed.

Addresses exist only inside namespaces that the test makes and removes. It needs root.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import stepkeep as sk
from stepkeep_lab.postgres import PostgresServer
from tests.processes import Program
from tests.remote.processes import GATED, HANDLERS, QUICK
from tests.workbench import wait_until

NET = "10.231.77"
PLACES = {"hub": 1, "far": 2, "near": 3}

pytestmark = pytest.mark.proof


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=20)


@contextmanager
def namespaces() -> Iterator[dict[str, str]]:
    """A hub with a bridge, and two places that reach nothing but the hub."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("NOT TESTED: a network that is cut, because that needs root and `ip netns`")
    mark = f"sk{os.getpid() % 100000}"
    names = {place: f"{mark}-{place}" for place in PLACES}
    made: list[str] = []
    try:
        try:
            for name in names.values():
                ip("netns", "add", name)
                made.append(name)
        except subprocess.CalledProcessError as problem:
            pytest.skip(f"NOT TESTED: a network that is cut, because namespaces cannot be made: {problem.stderr}")
        hub = names["hub"]
        ip("-n", hub, "link", "set", "lo", "up")
        ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        ip("-n", hub, "addr", "add", f"{NET}.1/24", "dev", "bridge")
        ip("-n", hub, "link", "set", "bridge", "up")
        for place in ("far", "near"):
            ip("-n", hub, "link", "add", place, "type", "veth", "peer", "name", "eth0", "netns", names[place])
            ip("-n", hub, "link", "set", place, "master", "bridge", "up")
            ip("-n", names[place], "link", "set", "lo", "up")
            ip("-n", names[place], "addr", "add", f"{NET}.{PLACES[place]}/24", "dev", "eth0")
            ip("-n", names[place], "link", "set", "eth0", "up")
        yield names
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True, timeout=20)


def within(name: str) -> tuple[str, ...]:
    return ("ip", "netns", "exec", name)


def wait_for(path: Path) -> None:
    wait_until(path.exists, 60)


def asked(hub: str, key: str, method: str, path: str, body: str = "") -> str:
    """One request to the service from inside the hub."""
    words = ["curl", "-sS", "--max-time", "60", "-X", method, "-H", f"Authorization: Bearer {key}"]
    words += ["-H", "Content-Type: application/json", "-d", body] if body else []
    made = subprocess.run(
        [*within(hub), *words, f"http://{NET}.1:8321{path}"], capture_output=True, text=True, timeout=90, check=True
    )
    return made.stdout


def test_a_worker_that_is_cut_off_loses_its_steps_and_its_late_report_is_fenced(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("NOT TESTED: a network that is cut, because there is no curl")
    programs: list[Program] = []
    marks = {place: tmp_path / place for place in ("far", "near")}
    for folder in marks.values():
        folder.mkdir()
    with namespaces() as names, PostgresServer() as server, server.fresh_database() as url:
        with sk.open(url, tenant="acme", actor="root", auto_migrate=True) as engine:
            for workflow in (QUICK, GATED):
                engine.publish(workflow)
            for owner in ("far", "near"):
                engine.users.create(owner, kind="service")
            engine.users.create("ann")
            keys = {owner: engine.keys.create(owner, scopes=["work"]).secret for owner in ("far", "near")}
            ann = engine.keys.create("ann", scopes=["read", "start", "operate"]).secret

        def launch(place: str, *arguments: str, **env: str) -> Program:
            program = Program(["-m", "stepkeep", *arguments], env, within(names[place]))
            programs.append(program)
            return program

        def worker(place: str) -> Program:
            options = ["--server", f"http://{NET}.1:8321", "--app", str(HANDLERS), "--concurrency", "8"]
            made = launch(place, "worker", *options, STEPKEEP_KEY=keys[place], STEPKEEP_MARKS=str(marks[place]))
            made.says("serves with")
            return made

        def started(workflow: str) -> str:
            made = asked(names["hub"], ann, "POST", "/runs", json.dumps({"workflow": workflow}))
            return str(json.loads(made)["run_id"])

        def result(run: str) -> dict[str, object]:
            for _ in range(3):
                found: dict[str, object] = json.loads(asked(names["hub"], ann, "GET", f"/runs/{run}/result?wait=20"))
                if found["finished"]:
                    return found
            raise AssertionError(f"run {run} does not end")

        try:
            # The database is reached by its socket in the file system: the hub alone has it.
            launch("hub", "serve", "--db", url, "--host", f"{NET}.1", "--port", "8321", "--json").address()
            far = worker("far")
            held = started("gated")
            wait_for(marks["far"] / f"wait-{held}")
            ip("-n", names["hub"], "link", "set", "far", "down")
            far.says("the service does not answer", 120)
            worker("near")
            (marks["near"] / "go").touch()
            # Its lease of 4 s runs out, and the other worker takes the step over.
            wait_for(marks["near"] / f"wait-{held}")
            assert result(held)["state"] == "succeeded"
            meanwhile = [started("quick") for _ in range(5)]
            # The handler of the first worker returns while it is cut off; healed, its report comes too late.
            (marks["far"] / "go").touch()
            ip("-n", names["hub"], "link", "set", "far", "up")
            far.says("the service answers again", 120)
            later = [started("quick") for _ in range(5)]
            for run in (*meanwhile, *later):
                assert result(run)["state"] == "succeeded"
            attempts = json.loads(asked(names["hub"], ann, "GET", f"/runs/{held}/steps/wait/attempts"))["attempts"]
            assert [one["state"] for one in attempts] == ["lost", "succeeded"]
            assert [one["worker"].partition(":")[0] for one in attempts] == ["worker", "worker"]
            lost = [line for line in far.lines if "is lost" in line or "dropped" in line]
            assert lost, far.lines
            for run in (held, *meanwhile, *later):
                verdict = json.loads(asked(names["hub"], ann, "GET", f"/runs/{run}/certificate"))
                assert verdict["ok"], verdict
            assert len((marks["near"] / f"wait-{held}").read_text().splitlines()) == 1
            assert len((marks["far"] / f"wait-{held}").read_text().splitlines()) == 1
        finally:
            for program in programs:
                program.end()
