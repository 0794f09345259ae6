"""Processes of `stepkeep serve` and `stepkeep worker --server` under a test's control."""

from __future__ import annotations

from pathlib import Path

import httpx2

import stepkeep as sk
from tests.processes import Fleet, Program

HANDLERS = Path(__file__).with_name("handlers.py")

QUICK = sk.Workflow("quick", lease="4s")
QUICK.step("one", "fleet.quick")
QUICK.step("two", "fleet.quick", after="one")
QUICK.step("three", "fleet.quick", after="two")

GATED = sk.Workflow("gated", lease="4s")
GATED.step("wait", "fleet.gated")
GATED.step("then", "fleet.quick", after="wait")


class Site(Fleet):
    """A service over one database, and workers of it."""

    def __init__(self, url: str, folder: Path) -> None:
        super().__init__(url, folder)
        with sk.open(url, tenant="acme", actor="root") as engine:
            for workflow in (QUICK, GATED):
                engine.publish(workflow)
            engine.users.create("worker", kind="service")
            engine.users.create("ann")
            key = engine.keys.create("worker", scopes=["work"]).secret
            self.key = engine.keys.create("ann", scopes=["read", "start", "operate"]).secret
        self.key_file = folder / "worker.key"
        self.key_file.write_text(key, encoding="utf-8")
        self.key_file.chmod(0o600)

    def service(self, port: int = 0) -> tuple[Program, str]:
        return self.serve("--db", self.url, "--port", str(port))

    def worker(self, address: str, *more: str) -> Program:
        options = ["--server", address, "--key-file", str(self.key_file), "--app", str(HANDLERS), *more]
        program = self.start("-m", "stepkeep", "worker", *options, "--concurrency", "4", "--threads", "4")
        program.says("serves with")
        return program

    def client(self, address: str) -> httpx2.Client:
        return httpx2.Client(base_url=address, headers={"Authorization": f"Bearer {self.key}"}, timeout=60)


def started(client: httpx2.Client, workflow: str, key: str | None = None) -> str:
    headers = {} if key is None else {"Idempotency-Key": key}
    answer = client.post("/runs", json={"workflow": workflow}, headers=headers)
    assert answer.status_code in (200, 201), answer.text
    return str(answer.json()["run_id"])


def outcome(client: httpx2.Client, run_id: str) -> dict[str, object]:
    """How a run ended; it must end within 60 s."""
    for _ in range(3):
        found: dict[str, object] = client.get(f"/runs/{run_id}/result", params={"wait": 20}).json()
        if found.get("finished"):
            return found
    raise AssertionError(f"run {run_id} does not end: {client.get(f'/runs/{run_id}').text}")
