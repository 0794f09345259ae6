"""The worker in TypeScript of the examples, in a real Node process against a real service."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

import stepkeep as sk
from tests.databases import migrated_file
from tests.remote.processes import Site, outcome
from tests.suites import in_proof

EXAMPLE = Path(__file__).parents[2] / "examples" / "typescript-worker"
FLAGS = ("worker.ts", "--target", "es2022", "--module", "nodenext", "--noCheck", "--skipLibCheck")

SHOUTS = sk.Workflow("shouts", lease="3s")
SHOUTS.step("shout", "text.shout", inputs={"text": "${{ input.text }}"})
SHOUTS.step("slow", "text.slow", inputs={"seconds": 0.05}, after="shout")


def program(folder: Path, compiler: str) -> list[str]:
    """The command that runs the example here."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("NOT TESTED: the TypeScript worker, because there is no node")
    for file in EXAMPLE.iterdir():
        shutil.copy(file, folder)
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip("v\n")
    if tuple(map(int, version.split(".")[:2])) >= (22, 18):
        return [node, "worker.ts"]
    found = shutil.which("tsc")
    command = [found] if found else None
    if compiler == "npm" and command is None and shutil.which("npm"):
        command = ["npm", "exec", "--yes", "--package=typescript", "--", "tsc"]
    if command is None:
        pytest.skip("NOT TESTED: the TypeScript worker, because node is older than 22.18 and there is no tsc")
    made = subprocess.run([*command, *FLAGS], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    if not (folder / "worker.js").exists():
        pytest.skip(f"NOT TESTED: the TypeScript worker, because tsc cannot be had: {made.stdout}{made.stderr}"[:500])
    return [node, "worker.js"]


def test_the_example_has_less_than_two_hundred_lines() -> None:
    lines = (EXAMPLE / "worker.ts").read_text(encoding="utf-8").splitlines()
    assert len(lines) < 200
    assert max(map(len, lines)) <= 130


@pytest.mark.parametrize("compiler", ["here", in_proof("npm")])
def test_a_worker_in_typescript_runs_steps_and_drains(tmp_path: Path, compiler: str) -> None:
    folder = tmp_path / "typescript"
    folder.mkdir()
    command = program(folder, compiler)
    url = migrated_file(tmp_path / "stepkeep.db")
    with Site(url, tmp_path) as place:
        with sk.open(url, tenant="acme", actor="root") as engine:
            engine.publish(SHOUTS)
        _, address = place.service()
        env = {**os.environ, "STEPKEEP_SERVER": address, "STEPKEEP_KEY_FILE": str(place.key_file)}
        worker = subprocess.Popen(command, cwd=folder, env=env, stderr=subprocess.PIPE, text=True)
        try:
            with place.client(address) as client:
                runs = []
                for text in ("hello", "again", 7):
                    made = client.post("/runs", json={"workflow": "shouts", "input": {"text": text}})
                    runs.append(made.json()["run_id"])
                ends = [outcome(client, run) for run in runs]
                assert [one["state"] for one in ends] == ["succeeded", "succeeded", "failed"]
                assert "text must be a string" in str(ends[2]["error"])
                step = client.get(f"/runs/{runs[0]}/steps/shout").json()
                assert "HELLO" in str(step)
                worker.send_signal(signal.SIGTERM)
                said = worker.communicate(timeout=60)[1]
                assert worker.returncode == 0, said
                assert "has stopped" in said
                listed = client.get("/workers", params={"live": False}).json()["workers"]
                assert [one["state"] for one in listed] == ["shutdown"]
        finally:
            worker.kill()
            worker.communicate()
