"""Plays schemathesis against a real `stepkeep serve` process in three roles, and prints how many cases it sent.

    python scripts/fuzz_service.py --examples 100 [--postgres [--confined]] [--role reader] [--phases fuzzing,stateful]

Every check of schemathesis is on. The exit status is 1 if a check failed in any role or phase. Streams that have no
end are left out. The service runs from a copy of the package, so that an edit during a long run changes nothing.
Below `--reports` are `report.md` and `report.json` (cases of each role and phase, findings), what schemathesis printed
for each role and phase, and the log of the service.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg

import stepkeep
from stepkeep.definition.native.reader import load_text
from stepkeep.engine import AsyncEngine
from stepkeep.operations.access import Scope
from stepkeep.store.postgres.grants import Part, grants
from stepkeep_lab.postgres import PostgresServer

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
positive_data_acceptance.expected-statuses = ["2xx", 400, 401, 403, 404, 409, 415, 422, 429, 431, 503]

[[operations]]
include-operation-id = ["create_run", "get_result"]
parameters = { "query.wait" = 0.2 }

[[operations]]
include-path-regex = "^/hooks/"
checks.not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 503]
"""
"""Data that the document allows may still name nothing, or be refused by a rule that no schema can say: parameters that
are short enough one by one may be too long for an address together (431). A hook whose secret the service lacks is 503:
its sender tries again. No worker runs, so that a request that waits for a run would take a minute: it waits shortly."""

WORKFLOW = {"workflow": "hello", "timeout": "1h", "steps": [{"name": "sign", "approval": {"deadline": "1h"}}]}


async def furnish(url: str) -> dict[str, str]:
    """A tenant with a workflow, runs and a key for each role."""
    async with AsyncEngine(url, actor="operator", auto_migrate=True) as engine:
        await engine.publish(load_text(json.dumps(WORKFLOW), "hello.json"))
        for number in range(3):
            await engine.start("hello", business_key=f"order-{number}")
        keys = {}
        for role, scopes in ROLES.items():
            await engine.users.create(role)
            keys[role] = str((await engine.keys.create(role, scopes=scopes)).secret)
        return keys


@dataclass(frozen=True, slots=True)
class Played:
    """What one role met in one phase."""

    role: str
    phase: str
    cases: int
    seconds: float
    status: int
    findings: tuple[str, ...]


def copy_of_package(folder: Path) -> Path:
    """A copy of the package as it is now, and the folder to import it from."""
    target = folder / "package"
    if not target.exists():
        source = Path(stepkeep.__file__).parent
        shutil.copytree(source, target / "stepkeep", ignore=shutil.ignore_patterns("__pycache__"))
    return target


def serve(url: str, folder: Path) -> tuple[subprocess.Popen[str], str]:
    """A service on a free port, and its address."""
    command = [sys.executable, "-m", "stepkeep", "serve", "--db", url, "--port", "0", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(copy_of_package(folder))}
    with (folder / "service.log").open("a", encoding="utf-8") as log:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stderr=log, env=environment, cwd=folder)
    assert child.stdout is not None
    text = ""
    while not text.endswith("\n}\n"):
        line = child.stdout.readline()
        if not line:
            raise SystemExit(f"the service did not start: {folder / 'service.log'}")
        text += line
    return child, str(json.loads(text)["service"]["address"])


def play(address: str, key: str, role: str, phase: str, asked: argparse.Namespace, folder: Path) -> Played:
    """Play one phase in one role."""
    config = folder / "schemathesis.toml"
    config.write_text(CONFIG, encoding="utf-8")
    program = Path(sys.executable).parent / "st"
    told = folder / f"{role}-{phase}.json"
    command = [
        str(program), "--config-file", str(config), "run", f"{address}/openapi.json",
        "-H", f"Authorization: Bearer {key}", "--checks", "all", "--phases", phase, "--mode", "all",
        "-n", str(asked.examples), "--seed", str(asked.seed), "--request-timeout", "90", "--max-response-time", "75",
        "--exclude-path-regex", ENDLESS, "--continue-on-failure", "--suppress-health-check", "all",
        "--no-color", "--warnings", "off", "--generation-database", "none",
        "--report", "json", "--report-json-path", str(told),
    ]  # fmt: skip
    if asked.include:
        command += ["--include-path-regex", asked.include]
    done = subprocess.run(command, text=True, capture_output=True, cwd=folder)
    (folder / f"{role}-{phase}.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    if not told.exists():
        return Played(role, phase, 0, 0.0, done.returncode or 1, ("schemathesis wrote no report",))
    report = json.loads(told.read_text(encoding="utf-8"))
    findings = tuple(sorted({found(entry) for entry in (*report["failures"], *report["errors"])}))
    cases = int(report["test_cases"]["generated"])
    return Played(role, phase, cases, round(report["running_time"], 1), done.returncode, findings)


def found(entry: dict[str, object]) -> str:
    """One line for a failure or error of schemathesis."""
    place = entry.get("operation") or entry.get("label") or ""
    title = entry.get("title") or entry.get("type") or entry.get("message") or entry.get("kind") or "finding"
    return f"{place}: {title}"


def write_report(folder: Path, store: str, asked: argparse.Namespace, played: list[Played]) -> None:
    """The report of a run so far. Written after each phase, so that an interrupted run has one too."""
    total = sum(one.cases for one in played)
    told = {
        "version": stepkeep.__version__,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "store": store,
        "seed": asked.seed,
        "examples": asked.examples,
        "cases": total,
        "played": [asdict(one) for one in played],
    }
    (folder / "report.json").write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    lines = [
        f"# schemathesis on {store}: {total:,} cases",
        "",
        f"Stepkeep {stepkeep.__version__}, seed {asked.seed}, {asked.examples} examples an operation, {told['time']}.",
        "",
        "| role | phase | cases | seconds | findings |",
        "|---|---|---:|---:|---|",
        *(
            f"| {one.role} | {one.phase} | {one.cases:,} | {one.seconds:,.0f} | {'; '.join(one.findings) or 'none'} |"
            for one in played
        ),
    ]
    (folder / "report.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=20, help="how many examples of each operation")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31))
    store = parser.add_mutually_exclusive_group()
    store.add_argument("--db", help="an empty, migrated database; a SQLite file of its own by default")
    store.add_argument("--postgres", action="store_true", help="a database on a PostgreSQL server of its own")
    parser.add_argument("--confined", action="store_true", help="with --postgres: serve under row-level security")
    parser.add_argument("--role", choices=sorted(ROLES), action="append", help="only this role; may be repeated")
    parser.add_argument("--phases", default="examples,coverage,fuzzing,stateful")
    parser.add_argument("--include", help="only paths that match this regular expression")
    parser.add_argument("--reports", type=Path, help="where the reports go; a temporary folder by default")
    asked = parser.parse_args()
    if asked.confined and not asked.postgres:
        parser.error("--confined needs --postgres")
    folder = asked.reports or Path(tempfile.mkdtemp(prefix="stepkeep-fuzz-"))
    folder.mkdir(parents=True, exist_ok=True)
    if not asked.postgres:
        return play_all(asked.db or f"sqlite:///{folder.resolve()}/service-{os.getpid()}.db", asked, folder)
    with PostgresServer() as server, server.fresh_database() as url:
        return play_all(url, asked, folder)


def confined(url: str) -> str:
    """The same database for a new role under row-level security, which needs no password here."""
    parts = urlsplit(url)
    with psycopg.connect(url, autocommit=True) as session:
        session.execute("create role stepkeep_fuzz login")
        for statement in grants("stepkeep_fuzz", Part.API, database=parts.path.strip("/")):
            session.execute(statement.encode())
    return urlunsplit(parts._replace(netloc=f"stepkeep_fuzz@{parts.netloc.rpartition('@')[2]}"))


def play_all(url: str, asked: argparse.Namespace, folder: Path) -> int:
    """Play all roles and phases on this database. Returns the exit status."""
    store = url.partition(":")[0]
    keys = asyncio.run(furnish(url))
    service, address = serve(confined(url) if asked.confined else url, folder)
    played: list[Played] = []
    try:
        for role in asked.role or ROLES:
            for phase in asked.phases.split(","):
                one = play(address, keys[role], role, phase, asked, folder)
                played.append(one)
                write_report(folder, store, asked, played)
                told = f"{role}, {phase}: {one.cases} cases, {len(one.findings)} findings, exit status {one.status}"
                sys.stdout.write(f"{told}: {folder / f'{role}-{phase}.txt'}\n")
                sys.stdout.flush()
                if service.poll() is not None:
                    raise SystemExit(f"the service has ended: {folder / 'service.log'}")
    finally:
        service.terminate()
        service.wait(30)
    sys.stdout.write(f"{sum(one.cases for one in played)} cases in all, seed {asked.seed}: {folder / 'report.md'}\n")
    return int(any(one.status or one.findings for one in played))


if __name__ == "__main__":
    sys.exit(main())
