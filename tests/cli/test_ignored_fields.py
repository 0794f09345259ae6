"""No field is accepted and ignored in silence: what has no effect is said by check, run, start, publish and Python."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

import stepkeep as sk
from tests.cli.conftest import HANDLERS, Cli

STREAM: dict[str, Any] = {
    "workstream_id": "stream",
    "max_duration_seconds": 60,
    "tasks": [
        {
            "task_id": "t",
            "type": "pytest",
            "status": "running",
            "worker_requirements": {"min_version": "2.0"},
            "context_requirements": {"max_context_tokens": 5},
            "execution": {"command": "true"},
        }
    ],
}
RESOURCE: dict[str, Any] = {
    "apiVersion": "ioa.dev/v0.2",
    "kind": "Workflow",
    "metadata": {"name": "resource"},
    "spec": {
        "description": "d",
        "domainsInvolved": ["x"],
        "timeout": "1h",
        "steps": [
            {
                "name": "g",
                "agent": "people",
                "action": "GATE: go?",
                "timeout": "5m",
                "retryPolicy": {"maxRetries": 1},
                "colour": "red",
            }
        ],
    },
    "status": {},
}
ACTIONS: dict[str, Any] = {
    "schemaVersion": 1,
    "workflowId": "w",
    "workspaceId": "ws",
    "name": "n",
    "version": 1,
    "active": True,
    "executionTier": "Assisted",
    "actions": [
        {
            "actionId": "a",
            "order": 1,
            "portFamily": "CrmSales",
            "operation": "lead:write",
            "executionTierOverride": "Assisted",
        }
    ],
    "capabilities": {
        "lead:write": {
            "safety": {
                "idempotent": True,
                "supportsDryRun": True,
                "supportsRollback": True,
                "defaultTier": "Assisted",
            }
        }
    },
}
TEMPLATE: dict[str, Any] = {
    "template": "t",
    "steps": [{"position": 0, "name": "APPROVAL", "timeout_seconds": 5}],
}
SAID = {
    "stream.json": ["`context_requirements`", "`status`"],
    "resource.json": ["`retryPolicy`", "no key `colour`", "`status`"],
    "actions.json": [
        "`supportsDryRun`",
        "`supportsRollback`",
        "actions.json:1:",
        "`Assisted` runs like `Auto`",
    ],
    "template.json": ["`timeout_seconds`"],
}


@pytest.fixture
def files(home: Path) -> None:
    for name, data in (("stream", STREAM), ("resource", RESOURCE), ("actions", ACTIONS), ("template", TEMPLATE)):
        (home / f"{name}.json").write_text(json.dumps(data))


@pytest.mark.parametrize("file", SAID)
@pytest.mark.parametrize("command", ["check", "publish", "start", "run"])
@pytest.mark.usefixtures("files")
def test_every_command_that_takes_a_definition_says_what_has_no_effect(cli: Cli, command: str, file: str) -> None:
    more = {"run": ["--no-wait"], "publish": ["--handlers-elsewhere"], "start": ["--handlers-elsewhere"]}
    said = cli(command, file, *more.get(command, []))
    assert said.status in (0, 4), said.err
    told = said.out if command == "check" else said.err
    for text in SAID[file]:
        assert text in told, told
    assert "warning:" in told
    if command in ("start", "run"):
        assert "has no `timeout`" not in told, "advice that is not about fields without effect is for check and publish"


@pytest.mark.usefixtures("files")
def test_json_stays_one_object_and_the_warnings_go_to_standard_error(cli: Cli) -> None:
    said = cli("publish", "stream.json", "--json")
    assert said.json["definition"]["workflow"] == "stream"
    assert "`context_requirements`" in said.err


@pytest.mark.parametrize("file", SAID)
@pytest.mark.usefixtures("files")
def test_python_logs_the_same_when_it_loads_a_file(file: str, home: Path, caplog: pytest.LogCaptureFixture) -> None:
    # The file's name is part of the text, and each text is logged once in a process.
    own = home / f"python-{file}"
    own.write_bytes((home / file).read_bytes())
    with caplog.at_level(logging.WARNING, "stepkeep.definition"):
        sk.load_file(own)
    for text in SAID[file]:
        assert text.replace("actions.json", own.name) in caplog.text


def test_the_description_of_an_input_is_part_of_the_complaint_about_it(cli: Cli, home: Path) -> None:
    (home / "described.yaml").write_text(
        "workflow: described\ntimeout: 1h\ninput: {n: {type: integer, description: how many boxes}}\n"
        "steps: [{name: a, uses: cli.work, timeout: 5s}]\n"
    )
    said = cli("start", "described.yaml")
    assert said.status == 2
    assert "`n` is missing (how many boxes)." in said.err
    assert "how many boxes" in cli("check", "described.yaml", "--explain").out
    assert cli("run", "described.yaml", "--app", HANDLERS, "--input", '{"n": 1}').status == 0
