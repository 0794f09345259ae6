"""After a tour with planted secrets, a dump of the whole database and all logs of the processes hold none of them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import apsw
import asyncpg
import httpx2
import pytest

from stepkeep.api.browsers import COOKIE, CSRF
from stepkeep.edges.secret_values import spellings
from stepkeep.network.signatures import write_key
from stepkeep.operations.access import key_text
from stepkeep.store.postgres.connections import read_options
from tests.api.outside import BODY, TO_MESSAGE, signed
from tests.api.stage import on
from tests.api.test_service import said
from tests.suites import first_on

APP = """
import logging, pathlib
import stepkeep as sk

@sk.step("uses-secret")
def uses(token: str) -> str:
    logging.getLogger("app").error("the handler has %s", token)
    raise OSError(f"the other side refused {token}")

@sk.step("by-hand")
def by_hand(ctx: sk.Context) -> None:
    pathlib.Path("token").write_text(ctx.completion_token)
"""
FLOWS = [
    """
workflow: leaky
timeout: 1h
steps:
  - {name: call, uses: uses-secret, with: {token: "${{ secret.TOKEN }}"}, timeout: 5s, retry: {max_attempts: 1}}
""",
    """
workflow: shell
timeout: 1h
steps:
  - name: say
    command: {argv: ["PYTHON", "-c", "import os, sys; print(os.environ['T']); sys.exit(os.environ['T'])"],
              env: {T: "${{ secret.VARIABLE }}"}}
    timeout: 30s
    retry: {max_attempts: 1}
""".replace("PYTHON", sys.executable),
    """
workflow: manual
timeout: 1h
steps:
  - {name: wait, uses: by-hand, timeout: 5s, completion: {mode: manual, deadline: 1h}}
""",
]


def canary(name: str) -> str:
    return f"CANARY-{name}-{uuid4().hex}"


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for child in started:
        child.kill()
        child.communicate()


@first_on("sqlite")
async def test_a_dump_and_all_logs_hold_no_planted_secret(
    database_url: str, tmp_path: Path, processes: list[subprocess.Popen[str]]
) -> None:
    (tmp_path / "app.py").write_text(APP)
    hook = os.urandom(32)
    keyed = {"HOOK": write_key(hook), "WEBHOOK": write_key(os.urandom(32))}
    secrets = {"TOKEN": canary("token"), "VARIABLE": canary("variable"), **keyed}
    planted = dict(secrets)
    keys: list[str] = []

    async with on(database_url) as stage:
        keys.append(await stage.key())
        keys.append(await stage.key("read", owner="bob"))
    planted |= {f"secret of key {number}": key[-43:] for number, key in enumerate(keys)}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STEPKEEP_")}
    environment |= {f"STEPKEEP_SECRET_{name}": value for name, value in secrets.items()}

    def start(*arguments: str) -> subprocess.Popen[str]:
        place = len(processes)
        with open(tmp_path / f"{place}.err", "w") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", "stepkeep", *arguments, "--db", database_url],
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
            )
        processes.append(child)
        return child

    service = start("serve", "--port", "0", "--json", "--log-level", "debug", "--log-format", "json")
    start("worker", "--app", "app.py", "--tenant", "acme", "--log-level", "debug", "--allow-commands", "acme")
    address = said(service)["address"]
    planted |= _tour(address, keys, hook, tmp_path)
    logs = ""
    for child in reversed(processes):
        child.send_signal(signal.SIGTERM)
        logs += child.communicate(timeout=60)[0]
    logs += "".join(file.read_text() for file in tmp_path.glob("*.err"))
    assert "POST /runs" in logs, "the service logs its requests"
    dump = await asyncio.to_thread(_dump, database_url)
    assert "leaky" in dump, "the dump has what the tour made"
    assert "signed_in" in dump
    for name, value in planted.items():
        for spelling in spellings(value):
            assert spelling not in dump, f"{name} is in the database"
            assert spelling not in logs, f"{name} is in a log"


def _tour(address: str, keys: list[str], hook: bytes, home: Path) -> dict[str, str]:
    """Use every kind of secret, rightly and wrongly; returns those that the service made."""
    made: dict[str, str] = {}
    with httpx2.Client(base_url=address, headers={"Authorization": f"Bearer {keys[0]}"}, timeout=60) as client:

        def ended(run: str, *states: str) -> None:
            ends = time.monotonic() + 60
            while (state := client.get(f"/runs/{run}/result?wait=20&until_blocked=true").json()["state"]) not in states:
                assert time.monotonic() < ends, state

        for flow in FLOWS:
            answer = client.post("/workflows", content=flow, headers={"Content-Type": "text/yaml"})
            assert answer.status_code == 201, answer.text
        webhook = {"kind": "webhook", "options": {"url": "https://127.0.0.1:9/in", "secrets": ["WEBHOOK"]}}
        assert client.put("/sinks/out", json=webhook).status_code == 200
        assert client.post("/sinks/out/test").json()["delivered"] is False
        for flow in ("leaky", "shell"):
            answer = client.post("/runs", json={"workflow": flow})
            assert answer.status_code == 201, answer.text
            ended(answer.json()["run_id"], "failed")
        run = client.post("/runs", json={"workflow": "manual"}).json()["run_id"]
        ended(run, "blocked")
        made["first completion token"] = (home / "token").read_text()
        made["completion token"] = client.post(f"/runs/{run}/steps/wait/token", json={"reason": "lost"}).json()["token"]
        wrong = {"token": made["first completion token"]}
        assert client.post(f"/runs/{run}/steps/wait/complete", json=wrong).status_code == 409
        right = {"token": made["completion token"], "output": 1}
        assert client.post(f"/runs/{run}/steps/wait/complete", json=right).status_code == 200
        key = client.post("/api-keys", json={"owner": "bob", "scopes": ["read"]}).json()
        made["secret of a new key"] = key["secret"][-43:]
        rotated = client.post(f"/api-keys/{key['key']['id']}/rotate").json()
        made["secret of a rotated key"] = rotated["secret"][-43:]
        _hook(client, hook)
    with httpx2.Client(base_url=address, timeout=60) as browser:
        made["wrong secret"] = "A" * 42 + "Q"
        wrong_key = key_text(keys[0].split("_")[1], made["wrong secret"])
        assert browser.get("/runs", headers={"Authorization": f"Bearer {wrong_key}"}).status_code == 401
        assert browser.get(f"/runs?key={keys[0]}").status_code == 401
        assert browser.post("/session", json={"key": wrong_key}).status_code == 401
        assert browser.post("/session", json={"key": keys[0], "keys": keys[1]}).status_code == 400
        opened = browser.post("/session", json={"key": keys[0]}).json()
        made["session cookie"] = browser.cookies[COOKIE][17:]
        made["CSRF token"] = opened["csrf"]
        assert browser.post("/runs", json={"workflow": "manual"}, headers={CSRF: "wrong"}).status_code == 403
        assert browser.delete("/session", headers={CSRF: opened["csrf"]}).status_code == 200
    return made


def _hook(client: httpx2.Client, key: bytes) -> None:
    """A delivery that is signed with the secret, and one that is not."""
    assert client.post("/hooks", json={"hook": TO_MESSAGE}).status_code == 200
    genuine = client.post("/hooks/payments?tenant=acme", content=BODY, headers=signed(1, key))
    assert genuine.json() == {"result": "sent"}, genuine.text
    assert client.post("/hooks/payments?tenant=acme", content=BODY, headers=signed(2, key[::-1])).status_code == 401


def _dump(url: str) -> str:
    """Every row of every table as text, and on SQLite the bytes of the file and of what lies beside it."""
    if url.startswith("sqlite:///"):
        path = Path(url.removeprefix("sqlite:///"))
        raw = b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*") if file.is_file())
        connection = apsw.Connection(str(path))
        tables = [name for (name,) in connection.execute("select name from sqlite_schema where type = 'table'")]
        rows = [str(row) for name in tables for row in connection.execute(f'select * from "{name}"')]
        return raw.decode("latin-1") + "\n".join(rows)
    return asyncio.run(_dump_postgres(url))


async def _dump_postgres(url: str) -> str:
    connection = await asyncpg.connect(read_options(url).dsn)
    try:
        tables = await connection.fetch(
            "select quote_ident(table_schema) || '.' || quote_ident(table_name) from information_schema.tables"
            " where table_schema not in ('pg_catalog', 'information_schema') and table_type = 'BASE TABLE'"
        )
        rows = []
        for (table,) in tables:
            rows += [str(tuple(row)) for row in await connection.fetch(f"select * from {table}")]
        return "\n".join(rows)
    finally:
        await connection.close()
