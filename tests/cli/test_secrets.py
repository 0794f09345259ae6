"""Secrets that steps were given are found where their owner put them, and nowhere else."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.rows import every_row, raw_bytes
from tests.worker.loopback import Server

SECRETS = {
    name: f"CANARY-{name}-7f3a"
    for name in ("header", "password", "query", "fragment", "env", "argument", "body", "stdin", "cwd")
}
WHO = "http://user:${{ input.password }}@"
QUERY = "?api_key=${{ input.query }}"
BEARER = {"Authorization": "Bearer ${{ input.header }}"}
RETRIED = {"refused", "server-error"}


def calls(open_port: int, closed_port: int) -> dict[str, dict[str, Any]]:
    here = f"127.0.0.1:{open_port}"
    return {
        "newline": {"url": f"http://{here}/", "headers": {"Authorization": "Bearer ${{ input.header }}\n"}},
        "ascii": {"url": f"http://{here}/", "headers": {"X-Api-Key": "${{ input.header }} é"}},
        "refused": {"url": f"{WHO}127.0.0.1:{closed_port}/p{QUERY}#${{{{ input.fragment }}}}", "headers": BEARER},
        "server-error": {
            "url": f"{WHO}{here}/503{QUERY}",
            "method": "POST",
            "headers": BEARER,
            "body": {"secret": "${{ input.body }}"},
        },
        "redirect": {"url": f"{WHO}{here}/302{QUERY}", "headers": BEARER},
        "large": {"url": f"{WHO}{here}/large{QUERY}", "headers": BEARER},
        "internal": {"url": f"{WHO}169.254.169.254/p{QUERY}", "headers": BEARER},
        "port": {"url": f"{WHO}127.0.0.1:99999/p{QUERY}", "headers": BEARER},
        "malformed": {"url": f"{WHO}[::1/p{QUERY}", "headers": BEARER},
    }


COMMANDS: dict[str, dict[str, Any]] = {
    "no-program": {"argv": ["no-such-program", "${{ input.argument }}"], "env": {"PLAIN": "${{ input.env }}"}},
    "no-directory": {"argv": ["true", "${{ input.argument }}"], "cwd": "/no/${{ input.cwd }}"},
    "no-text": {"argv": ["true", "${{ input.argument }}"], "env": {"PLAIN": "${{ input.env }}"}, "cwd": "${{ 5 }}"},
    "exit-status": {"argv": ["sh", "-c", "cat > /dev/null; exit 3", "${{ input.argument }}"]},
    "quoting": {
        "argv": ["sh", "-c", 'echo "bad $API_TOKEN $1 $2" >&2; exit 3', "sh", "--password", "${{ input.argument }}"],
        "env": {"API_TOKEN": "${{ input.env }}"},
    },
}


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    query = f"?api_key={SECRETS['query']}"
    server.answers[f"/503{query}"] = (503, {}, f"no: {SECRETS['header']} {SECRETS['password']}".encode())
    server.answers[f"/302{query}"] = (302, {"Location": server.url("/elsewhere")}, b"")
    server.answers[f"/large{query}"] = (200, {}, b"x" * 200_000)
    yield server
    server.close()


def leaky(http: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A workflow whose every step fails, each with secrets in its hands."""
    shared = {"depends_on": [], "retry": {"max_attempts": 2, "initial": "1ms", "on": ["transient"]}}
    steps = [{"name": name, "http": block, **shared} for name, block in http.items()]
    steps += [
        {"name": name, "command": block, "with": {"secret": "${{ input.stdin }}"}, **shared}
        for name, block in COMMANDS.items()
    ]
    fields = {name: {"type": "string"} for name in SECRETS}
    return {"workflow": "leaky", "timeout": "1m", "on_failure": "continue", "input": fields, "steps": steps}


def test_no_secret_reaches_the_record_the_log_or_the_screen(
    cli: Cli, home: Path, server: Server, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    db = ["--db", database_url]
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        (home / "leaky.json").write_text(json.dumps(leaky(calls(server.port, closed.getsockname()[1]))))
        given = json.dumps(SECRETS, separators=(",", ":"))
        said = [cli("run", "leaky.json", "--input", given, "--http-allow", "127.0.0.1", *db)]
    assert said[0].status == 1
    run = cli("runs", "--json", *db).json["runs"][0]["id"]
    steps = cli("show", run, "--json", *db).json["steps"]
    assert {step["state"] for step in steps} == {"failed"}
    assert {step["name"] for step in steps if step["attempts"] > 1} == RETRIED

    export = ["log", "export", run]
    looks = [["runs"], ["runs", "--json"], ["show", run], ["certify", run], export, [*export, "--as", "run"]]
    said += [cli(*look, *db) for look in looks]
    seen = [line for each in said for line in (each.out + each.err).splitlines() if "CANARY" in line]
    assert [line for line in seen if not line.startswith('input = {"header": "CANARY')] == []
    assert len(seen) == 1  # `show` prints the input as the owner wrote it, without what is secret by its name
    assert '"password": "***"' in seen[0]
    assert SECRETS["password"] not in seen[0]
    assert "CANARY" not in json.dumps(steps)
    assert "CANARY" not in caplog.text

    rows = every_row(database_url)
    assert [row.table for row in rows if "CANARY" in row.without(*({"input"} if _holds_input(row.table) else ()))] == []
    assert [row.columns["input"] for row in rows if _holds_input(row.table)] == [given]
    whole = raw_bytes(database_url)
    assert whole.count(b"CANARY") == whole.count(given.encode()) * len(SECRETS)


def _holds_input(table: str) -> bool:
    return table.endswith("run_details")
