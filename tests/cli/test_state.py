"""`stepkeep state` and `stepkeep worker --state-dir`, as a person runs them."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, finish
from tests.workbench import wait_until

Start = Callable[..., subprocess.Popen[str]]

STREAM = """
workstream_id: nightly
max_duration_seconds: 60
tasks:
  - task_id: build
    execution: { command: "true" }
  - task_id: test
    dependencies: [build]
    execution: { command: "true" }
"""


def test_state_files_are_exported_checked_and_found_changed(cli: Cli, home: Path) -> None:
    (home / "ws.yaml").write_text(STREAM)
    assert cli("run", "ws.yaml").status == 0
    said = cli("state", "export", ".state")
    assert said.status == 0
    assert "nightly; 6 files written" in said.out
    assert "state check .state" in said.out
    assert cli("state", "export", ".state", "--json").json["export"]["files"] == 0
    checked = cli("state", "check", ".state")
    assert checked.status == 0
    assert "nightly: completed, 2 tasks completed; would resume: nothing" in checked.out
    assert "agree with the database" in checked.out
    kept = home / ".state" / "checkpoints" / "nightly_latest.json"
    kept.write_text(kept.read_text().replace('"build"', '"other"'))
    again = cli("state", "check", ".state", "--json")
    assert again.status == 1
    [found] = again.json["findings"]
    assert (found["code"], found["file"]) == ("drift", "checkpoints/nightly_latest.json")
    assert cli("state", "check", "nowhere").status == 2


@pytest.mark.proof
def test_a_worker_keeps_the_state_files_current(process: Start, cli: Cli, home: Path) -> None:
    (home / "ws.yaml").write_text(STREAM)
    worker = process("worker", "--state-dir", ".state")
    cli("start", "ws.yaml")
    current = home / ".state" / "current.json"

    def is_completed() -> bool:
        found = json.loads(current.read_text())["workstreams"] if current.exists() else {}
        return bool(found.get("nightly", {}).get("status") == "completed")

    wait_until(is_completed)
    worker.send_signal(signal.SIGTERM)
    assert finish(worker).status == 0
    assert cli("state", "check", ".state").status == 0


ARCHIVED = "archive: { keep: { failed: forever, completed: 90d } }\n"


def test_a_worker_archives_what_declares_it_and_prune_keeps_it(process: Start, cli: Cli, home: Path) -> None:
    (home / "ws.yaml").write_text(STREAM + ARCHIVED)
    worker = process("worker")
    run = cli("start", "ws.yaml", "--json").json["run"]["id"]
    wait_until(lambda: cli("show", run, "--json").json["run"]["state"] == "succeeded")
    worker.send_signal(signal.SIGTERM)
    said = finish(worker)
    assert f"run {run} (nightly, succeeded) is archived in .state/archive/nightly/{run}" in said.err
    [manifest] = (home / ".state" / "archive" / "nightly" / run).glob("*.manifest.json")
    assert cli("log", "verify", str(manifest)).status == 0
    assert "0 runs archived" in cli("archive").out
    [again] = cli("archive", run, "--json").json["archive"]["bundles"]
    assert again["made"] is False
    pruned = cli("prune", "--older-than", "0s", "--no-archive", "--json").json["prune"]
    assert (pruned["deleted"], pruned["kept"]) == (0, 1)
    assert "1 kept longer by their workflows" in cli("prune", "--older-than", "0s", "--dry-run").out


@pytest.mark.proof
def test_a_worker_signs_the_heads_of_what_ended(process: Start, cli: Cli, home: Path) -> None:
    (home / "ws.yaml").write_text(STREAM)
    key = cli("evidence", "--new-key", "signing.key", "--json").json["signing_key"]
    assert cli("worker", "--sign-with", "nowhere.key").status == 2
    worker = process("worker", "--sign-with", "signing.key")
    run = cli("start", "ws.yaml", "--json").json["run"]["id"]
    wait_until(lambda: cli("show", run, "--json").json["run"]["state"] == "succeeded")
    worker.send_signal(signal.SIGTERM)
    assert f"the heads of 1 finished runs are signed with key {key['id']}" in finish(worker).err
    assert cli("evidence", "--sign-heads", "--sign-with", "signing.key", "--json").json["signed_heads"]["signed"] == 0
