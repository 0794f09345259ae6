"""The evidence of a failure is with the run: worker, inputs given, traceback, log lines; secrets are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import HANDLERS, Cli, finish
from tests.cli.test_explain import Start
from tests.cli.test_worker_startup import heard
from tests.workbench import wait_until

BREAKING = """
workflow: breaking
timeout: 1h
steps:
  - name: label
    uses: mine.label
    with: {order: "${{ input.order }}", api_key: "${{ input.api_key }}"}
    timeout: 1m
    retry: {max_attempts: 1}
"""
CODE = """
import stepkeep as sk

@sk.step("mine.label")
def label(ctx: sk.Context, order: dict, api_key: str) -> str:
    ctx.logger.info("labelling %s", order["id"])
    return order["email"] + " abcdef-from-env"
"""
INPUT = json.dumps({"order": {"id": 7}, "api_key": "abcdef-key"})


@pytest.fixture
def breaking(home: Path) -> Path:
    (home / "breaking.yaml").write_text(BREAKING)
    (home / "mine.py").write_text(CODE)
    return home


def test_a_failed_attempt_keeps_its_worker_its_inputs_and_its_traceback(
    cli: Cli, breaking: Path, database_url: str
) -> None:
    db = ("--db", database_url)
    ran = cli("run", "breaking.yaml", "--app", "mine.py", "--input", INPUT, *db, "--json")
    run = ran.json["run"]["id"]
    view = cli("show", run, "--step", "label", *db, "--json").json
    [attempt] = view["step"]["history"]
    assert attempt["worker"].startswith("run:")
    assert attempt["evidence"]["inputs"] == {"order": {"id": 7}, "api_key": "***"}
    assert "KeyError: 'email'" in attempt["evidence"]["traceback"]
    assert 'return order["email"]' in attempt["evidence"]["traceback"]
    said = cli("show", run, "--step", "label", *db).out
    assert "attempt 1: failed" in said
    assert f"at worker {attempt['worker']}" in said
    assert "abcdef" not in said.replace("abcdef-from-env", "")
    assert "mine.py" in said
    whole = cli("show", run, *db).out
    assert 'input = {"order": {"id": 7}, "api_key": "***"}' in whole
    assert attempt["worker"] in whole
    assert cli("show", run, "--step", "none", *db).status == 1


def test_an_attempt_that_succeeds_leaves_no_evidence(cli: Cli, home: Path) -> None:
    run = cli("run", "flow.yaml", "--app", HANDLERS, "--json").json["run"]["id"]
    [attempt] = cli("show", run, "--step", "first", "--json").json["step"]["history"]
    assert attempt["evidence"] is None
    assert 'first = {"did": "first"}' in cli("show", run).out


def test_values_of_secret_variables_are_hidden_in_tracebacks(
    cli: Cli, breaking: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "abcdef-from-env")
    run = cli("run", "breaking.yaml", "--app", "mine.py", "--input", INPUT, "--json").json["run"]["id"]
    said = cli("show", run, "--step", "label").out
    assert "abcdef-from-env" not in said
    assert "***" in said


def test_a_worker_logs_run_and_step_and_keeps_the_lines_of_handlers(cli: Cli, process: Start, breaking: Path) -> None:
    run = cli("start", "breaking.yaml", "--handlers-elsewhere", "--input", INPUT, "--json").json["run"]["id"]
    worker = process("worker", "--app", "mine.py", "--log-format", "json", "--keep-log", "5")
    heard(worker, "labelling 7")
    wait_until(lambda: cli("show", run, "--json").json["run"]["state"] == "failed")
    worker.terminate()
    finish(worker)
    [attempt] = cli("show", run, "--step", "label", "--json").json["step"]["history"]
    assert attempt["evidence"]["log"] == ["INFO labelling 7"]
    assert "log INFO labelling 7" in cli("show", run, "--step", "label").out


def test_a_line_of_the_log_names_its_attempt_in_both_formats(capsys: pytest.CaptureFixture[str]) -> None:
    import logging

    from stepkeep.cli.streams import FORMATS

    about = {"run_id": "r-1", "step": "label", "attempt": 2}
    record = logging.makeLogRecord({"name": "stepkeep.handler", "levelname": "INFO", "msg": "on %s", "args": ("it",)})
    record.__dict__.update(about)
    assert FORMATS["text"].format(record).endswith("INFO stepkeep.handler: on it [run r-1 step label attempt 2]")
    told = json.loads(FORMATS["json"].format(record))
    assert {name: told[name] for name in ("message", "run", "step", "attempt", "level")} == {
        "message": "on it",
        "run": "r-1",
        "step": "label",
        "attempt": 2,
        "level": "info",
    }


def test_an_unknown_level_or_format_is_refused(cli: Cli, home: Path) -> None:
    assert "--log-level takes one of debug, info, warning, error" in cli("worker", "--log-level", "loud").err
    assert cli("worker", "--log-format", "xml").status == 2
