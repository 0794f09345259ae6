"""Plays schemathesis against a real `stepkeep serve` process in three roles, and prints how many cases it sent.

    python scripts/fuzz_service.py --examples 100 [--db postgresql://…] [--role reader] [--phases fuzzing,stateful]

Every check of schemathesis is on. The exit status is 1 if a check failed in any role. Streams that have no end are
left out. A report of each role is written below `--reports`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

from stepkeep.definition.native import load_text
from stepkeep.engine import AsyncEngine
from stepkeep.operations.access import Scope

ROLES = {
    "admin": tuple(scope.value for scope in Scope),
    "operator": ("read", "start", "decide", "complete", "operate"),
    "reader": ("read",),
}
ENDLESS = r"^(/stream|/runs/\{run_id\}/stream|/as/run/runs/\{run_id\}/events|/work/listen)$"
"""Streams. Their own tests follow them."""

CONFIG = """
[checks]
negative_data_rejection.expected-statuses = [400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 429, 431, 503]
positive_data_acceptance.expected-statuses = ["2xx", 400, 401, 403, 404, 409, 415, 422, 429, 503]

[[operations]]
include-path-regex = "^/hooks/"
checks.not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 503]
"""
"""Data that the document allows may still name nothing, or be refused by a rule that no schema can say. A hook
whose secret the service lacks is 503: its sender tries again."""

WORKFLOW = {"workflow": "hello", "timeout": "1h", "steps": [{"name": "sign", "approval": {"deadline": "1h"}}]}


async def furnish(url: str) -> dict[str, str]:
    """A tenant with a workflow, runs and a key for each role."""
    async with AsyncEngine(url, actor="operator") as engine:
        await engine.publish(load_text(json.dumps(WORKFLOW), "hello.json"))
        for number in range(3):
            await engine.start("hello", business_key=f"order-{number}")
        keys = {}
        for role, scopes in ROLES.items():
            await engine.users.create(role)
            keys[role] = str((await engine.keys.create(role, scopes=scopes))["secret"])
        return keys


def serve(url: str) -> tuple[subprocess.Popen[str], str]:
    """A service on a free port, and its address."""
    command = [sys.executable, "-m", "stepkeep", "serve", "--db", url, "--port", "0", "--json"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL)
    assert child.stdout is not None
    text = ""
    while not text.endswith("\n}\n"):
        line = child.stdout.readline()
        if not line:
            raise SystemExit("the service did not start")
        text += line
    return child, str(json.loads(text)["service"]["address"])


def play(address: str, key: str, role: str, asked: argparse.Namespace, folder: Path) -> tuple[int, int]:
    """Play one role. Returns the exit status and the number of cases."""
    config = folder / "schemathesis.toml"
    config.write_text(CONFIG, encoding="utf-8")
    program = Path(sys.executable).parent / "st"
    command = [
        str(program), "--config-file", str(config), "run", f"{address}/openapi.json",
        "-H", f"Authorization: Bearer {key}", "--checks", "all", "--phases", asked.phases, "--mode", "all",
        "-n", str(asked.examples), "--seed", str(asked.seed), "--request-timeout", "30",
        "--exclude-path-regex", ENDLESS, "--continue-on-failure", "--suppress-health-check", "all",
        "--no-color", "--warnings", "off",
        "--generation-database", "none",
    ]  # fmt: skip
    if asked.include:
        command += ["--include-path-regex", asked.include]
    done = subprocess.run(command, text=True, capture_output=True, cwd=folder)
    (folder / f"{role}.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    found = re.search(r"(\d[\d,]*) generated", done.stdout)
    return done.returncode, int(found[1].replace(",", "")) if found else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=20, help="how many examples of each operation")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31))
    parser.add_argument("--db", help="an empty, migrated database; a SQLite file of its own by default")
    parser.add_argument("--role", choices=sorted(ROLES), action="append", help="only this role; may be repeated")
    parser.add_argument("--phases", default="examples,coverage,fuzzing,stateful")
    parser.add_argument("--include", help="only paths that match this regular expression")
    parser.add_argument("--reports", type=Path, help="where the reports go; a temporary folder by default")
    asked = parser.parse_args()
    folder = asked.reports or Path(tempfile.mkdtemp(prefix="stepkeep-fuzz-"))
    folder.mkdir(parents=True, exist_ok=True)
    url = asked.db or f"sqlite:///{folder}/service-{os.getpid()}.db"
    keys = asyncio.run(furnish(url))
    service, address = serve(url)
    worst, total = 0, 0
    try:
        for role in asked.role or ROLES:
            status, cases = play(address, keys[role], role, asked, folder)
            sys.stdout.write(f"{role}: {cases} cases, exit status {status}, seed {asked.seed}: {folder / role}.txt\n")
            sys.stdout.flush()
            worst, total = max(worst, status), total + cases
            if service.poll() is not None:
                raise SystemExit("the service has ended")
    finally:
        service.terminate()
        service.wait(30)
    sys.stdout.write(f"{total} cases in all\n")
    return min(worst, 1)


if __name__ == "__main__":
    sys.exit(main())
