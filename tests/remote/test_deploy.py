"""The files in deploy/: what can be checked without running them is checked."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
import yaml

from stepkeep.cli.main import app
from stepkeep_lab.postgres import PostgresServer
from tests.api.test_service import Start, program, said
from tests.cli.surface import commands
from tests.confined import as_role

__all__ = ["program"]

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
UNITS = sorted(DEPLOY.glob("*.service"))
ROLES = {"stepkeep_api", "stepkeep_worker"}
WORDS = {"8321": "0", "0.0.0.0": "127.0.0.1"}
HANDLERS = """
import stepkeep as sk

@sk.step("deploy.greet")
def greet():
    return "hello"
"""


def parsed(words: list[str]) -> None:
    """The program has this command with these options, and takes their values."""
    tree = dict(commands(app))
    path = next(tuple(words[:size]) for size in (1, 2) if tuple(words[:size]) in tree)
    tree[path].make_context(" ".join(path), list(words[len(path) :]))


def docker_words(instruction: str) -> list[str]:
    [found] = re.findall(
        rf"^{instruction} (\[.*\])$", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE
    )
    return list(json.loads(found))


def test_the_command_of_the_image_is_one() -> None:
    assert docker_words("ENTRYPOINT") == ["stepkeep"]
    parsed(docker_words("CMD"))


def test_the_image_copies_files_that_exist_and_extras_that_are_defined() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    for line in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE):
        for name in line.split():
            assert (ROOT / name).exists(), name
    [extras] = re.findall(r'"\.\[(.*)\]"', text)
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for extra in extras.split(","):
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE), extra


def test_every_service_of_compose_runs_a_command_of_the_program() -> None:
    services = COMPOSE["services"]
    assert set(services) == {"database", "migrate", "serve", "worker", "remote-worker"}
    for name, service in services.items():
        if name != "database":
            parsed(service["command"])
        for other in service.get("depends_on", {}):
            assert other in services
        for network in service["networks"]:
            assert network in COMPOSE["networks"]
        for secret in service.get("secrets", ()):
            assert secret in COMPOSE["secrets"]
    assert "inner" not in services["remote-worker"]["networks"], "a remote worker does not reach the database"
    assert COMPOSE["networks"]["inner"] == {"internal": True}
    assert services["serve"]["ports"] == ["127.0.0.1:8321:8321"]


def test_containers_may_take_longer_to_stop_than_the_program_drains() -> None:
    for name in ("serve", "worker", "remote-worker"):
        service = COMPOSE["services"][name]
        grace = float(service["command"][service["command"].index("--grace") + 1])
        assert float(service["stop_grace_period"].removesuffix("s")) > grace


def test_only_the_migration_has_the_role_of_the_owner() -> None:
    files = {name: service.get("env_file") for name, service in COMPOSE["services"].items()}
    assert files == {
        "database": ["database.env"],
        "migrate": ["database.env"],
        "serve": ["api.env"],
        "worker": ["worker.env"],
        "remote-worker": None,
    }


@pytest.fixture
def composed_dsn(postgres_server: PostgresServer) -> Iterator[str]:
    """The DSN of a migrated database. Roles are of the whole server: those that a test makes go with the database."""
    with psycopg.connect(postgres_server.dsn(), autocommit=True) as session:
        with postgres_server.fresh_database() as dsn:
            yield dsn
        for role in ROLES:
            session.execute(f"drop role if exists {role}".encode())


@pytest.mark.postgres
@pytest.mark.proof
def test_the_commands_of_compose_bring_up_a_service_and_a_worker_with_roles_of_their_own(
    composed_dsn: str, program: Start, tmp_path: Path
) -> None:
    """Each command is the one of the file; the containers, the passwords and the fixed port are left out."""
    head = (DEPLOY / "compose.yaml").read_text(encoding="utf-8").partition("services:")[0]
    granted = re.findall(r"run --rm migrate (db grants (\w+) --as \w+)", head)
    roles = {role: as_role(composed_dsn, role) for _, role in granted}
    assert set(roles) == ROLES
    assert all(f"postgresql://{role}:PASSWORD@database" in head for role in roles)

    def done(text: str) -> str:
        child = program(*shlex.split(text), "--db", composed_dsn)
        out, err = child.communicate(timeout=60)
        assert child.returncode == 0, err
        return out

    done(shlex.join(COMPOSE["services"]["migrate"]["command"]))
    with psycopg.connect(composed_dsn, autocommit=True) as session:
        for command, role in granted:
            session.execute(f"create role {role} login".encode())
            session.execute(done(command).encode())
    done("users create ann")
    key = json.loads(done("keys create ann --scope start --scope read --scope operate --json"))["secret"]

    (tmp_path / "handlers.py").write_text(HANDLERS, encoding="utf-8")
    serve = [WORDS.get(word, word) for word in COMPOSE["services"]["serve"]["command"]]
    service: dict[str, Any] = dict(said(program(*serve, "--json", "--db", roles["stepkeep_api"])))
    assert service["row_level_security"] is True
    headers = {"Authorization": f"Bearer {key}"}
    with httpx2.Client(base_url=service["address"], timeout=60, headers=headers) as client:
        text = "workflow: greeting\ntimeout: 1h\nsteps: [{name: greet, uses: deploy.greet, timeout: 5s}]\n"
        made = client.post("/workflows", content=text, headers={"Content-Type": "application/yaml"})
        assert made.status_code == 201, made.text
        worker = [word.replace("/app/", f"{tmp_path}/") for word in COMPOSE["services"]["worker"]["command"]]
        program(*worker, "--db", roles["stepkeep_worker"])
        run = client.post("/runs?wait=60", json={"workflow": "greeting"})
        assert run.status_code == 201, run.text
        assert run.json()["result"]["state"] == "succeeded", run.text


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_runs_a_command_of_the_program_and_waits_for_its_drain(unit: Path) -> None:
    text = unit.read_text(encoding="utf-8")
    [line] = re.findall(r"^ExecStart=\S+/stepkeep (.*)$", text, re.MULTILINE)
    words = shlex.split(line)
    parsed(words)
    [limit] = re.findall(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
    assert float(limit) > float(words[words.index("--grace") + 1])


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_accepts_a_unit(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("NOT TESTED: the units, because there is no systemd-analyze")
    # The program and the user of the unit are not installed here.
    text = unit.read_text(encoding="utf-8")
    for missing in ("User=stepkeep\n", "Group=stepkeep\n"):
        text = text.replace(missing, "")
    copy = tmp_path / unit.name
    copy.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE), encoding="utf-8")
    made = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True, timeout=60, check=False
    )
    said = [line for line in made.stderr.splitlines() if unit.name in line]
    if made.returncode != 0 and not said:
        pytest.skip(f"NOT TESTED: systemd-analyze cannot work here: {made.stderr[:200]}")
    assert said == [], made.stderr
