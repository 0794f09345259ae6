"""Secrets on the command line: where they are found, what is said without them, and that nothing prints them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.cli.test_explain import Town, town  # noqa: F401 - a fixture
from tests.suites import first_on

VALUE = "CANARY-0815-4711"
FLOW = """
workflow: secret
timeout: 1h
steps:
  - name: say
    command: {{argv: ["{python}", "-c", "import os, sys; print(os.environ['TOKEN']); sys.exit({status})"],
              env: {{TOKEN: "${{{{ secret.TOKEN }}}}"}}}}
    retry: {{max_attempts: 1}}
    timeout: 30s
"""


@pytest.fixture
def flow(home: Path) -> str:
    (home / "secret.yaml").write_text(FLOW.format(python=sys.executable, status=0))
    (home / "failing-secret.yaml").write_text(FLOW.format(python=sys.executable, status=3))
    return "secret.yaml"


@pytest.mark.parametrize("place", ["environment", "directory", "file", "command", "directory by variable"])
def test_run_finds_a_secret_in_each_place_and_prints_it_nowhere(
    cli: Cli, home: Path, flow: str, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (home / "secrets").mkdir()
    (home / "secrets" / "TOKEN").write_text(f"{VALUE}\n")
    (home / "secrets.env").write_text(f"TOKEN={VALUE}\n")
    options: list[str] = []
    match place:
        case "environment":
            monkeypatch.setenv("STEPKEEP_SECRET_TOKEN", VALUE)
        case "directory":
            options = ["--secrets-dir", "secrets"]
        case "file":
            options = ["--secrets-file", "secrets.env"]
        case "command":
            options = ["--secrets-command", f"{sys.executable} -c 'import sys; print(\"{VALUE}\")'"]
        case _:
            monkeypatch.setenv("STEPKEEP_SECRETS_DIR", "secrets")
    ran = cli("run", flow, *options, "--json")
    assert ran.status == 0
    assert ran.json["steps"][0]["output"]["stdout"] == "[secret TOKEN]\n"
    failed = cli("run", "failing-secret.yaml", "--dev", *options)
    assert failed.status == 1
    assert "exit status 3: ***" in failed.out  # hidden already by the name of the variable
    shown = cli("show", ran.json["run"]["id"], "--step", "say")
    assert VALUE not in ran.out + failed.out + failed.err + shown.out


def test_run_refuses_to_begin_without_the_secrets_of_its_run(cli: Cli, flow: str) -> None:
    said = cli("run", flow)
    assert said.status == 2
    assert "step say of run" in said.err
    assert "reads the secret TOKEN, which is not here: set STEPKEEP_SECRET_TOKEN, or give --secrets-dir" in said.err


@first_on("sqlite")
@pytest.mark.proof
def test_a_secret_that_no_worker_has(town: Town, home: Path, flow: str, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    run = town.start_file(flow)
    town.worker()
    cause = town.told(run, "no_secret")
    assert "it reads the secret TOKEN, which no live worker has (1 worker is alive)" in cause["sentence"]
    monkeypatch.setenv("STEPKEEP_SECRET_TOKEN", VALUE)
    town.obey(cause["command"])
    town.ends(run)
