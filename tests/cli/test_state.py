"""`stepkeep state` and `stepkeep worker --state-dir`, as a person runs them."""

from __future__ import annotations

import fcntl
import json
import os
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


def test_state_files_are_exported_and_the_log_is_accepted(cli: Cli, home: Path) -> None:
    (home / "ws.yaml").write_text(STREAM)
    assert cli("run", "ws.yaml").status == 0
    said = cli("state", "export", ".state")
    assert said.status == 0
    assert "nightly; 6 files written" in said.out
    assert cli("state", "export", ".state", "--json").json["export"] == {
        "folder": ".state", "workstreams": ["nightly"], "files": 0, "lines": 0,
    }  # fmt: skip
    assert cli("log", "verify", ".state/transitions.jsonl", "--as", "workstream").status == 0


def test_a_worker_that_is_stopped_writes_the_last_transitions_whatever_signals_follow(
    process: Start, cli: Cli, home: Path
) -> None:
    """A second signal comes while the last lines are written. The folder is locked meanwhile, to make sure of that."""
    (home / "ws.yaml").write_text(STREAM)
    worker = process("worker", "--state-dir", ".state")
    wait_until((home / ".state" / "current.json").exists)
    lock = os.open(home / ".state" / ".transitions.lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    run = cli("start", "ws.yaml", "--json").json["run"]["id"]
    wait_until(lambda: cli("show", run, "--json").json["run"]["state"] == "succeeded")
    worker.send_signal(signal.SIGTERM)
    wait_until(lambda: "shutdown" in cli("log", "export", "--all", "--workers", "--as", "workstream").out)
    for _ in range(2):
        worker.send_signal(signal.SIGTERM)
    os.close(lock)
    said = finish(worker)
    assert (said.status, "has drained" in said.err) == (0, True), said.err
    lines = [json.loads(line) for line in (home / ".state" / "transitions.jsonl").read_text().splitlines()]
    assert run in {one["entity_id"] for one in lines if one["event_type"] == "journal_head"}
    assert {one["to_state"] for one in lines if one["event_type"].startswith("worker")} >= {"idle", "busy", "shutdown"}
    assert json.loads((home / ".state" / "current.json").read_text())["workstreams"]["nightly"]["status"] == "completed"
    assert cli("log", "verify", ".state/transitions.jsonl", "--as", "workstream").status == 0


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
