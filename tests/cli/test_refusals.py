"""Whatever is wrong is said in words, with the right exit status, and never as a traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stepkeep.cli import answering
from stepkeep.cli.failures import failure_of
from stepkeep.cli.main import app, main
from stepkeep.kernel.errors import (
    Broken,
    Conflict,
    Contended,
    DefinitionChanged,
    ExpressionError,
    Fenced,
    InvalidInput,
    KeyReused,
    NotAllowed,
    NotFound,
    PermissionDenied,
    QuotaExceeded,
    SchemaMismatch,
    StepkeepError,
    StoreError,
    StoreUnavailable,
)
from tests.cli.conftest import HANDLERS, Cli
from tests.cli.surface import commands

UNKNOWN = "01890000-0000-7000-8000-000000000001"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["walk"], "No such command 'walk'"),
        (["runs", "--colour"], "No such option: --colour"),
        (["--db", "sqlite:///x.db", "runs"], "--db goes behind the command: stepkeep COMMAND --db …"),
        (["runs", "--limit", "many"], "'--limit'"),
        (["runs", "--limit", "0"], "'--limit'"),
        (["runs", "--state", "happy"], "'happy' is no state of a run"),
        (["show"], "Missing argument 'RUN'"),
        (["complete", UNKNOWN, "step"], "Give the token"),
        (["complete", UNKNOWN, "step", "--token", "t", "--outcome", "Meh"], "'Meh' is no outcome"),
        (["run"], "Say what to run"),
        (["run", "flow.yaml", "--resume", UNKNOWN], "Say what to run"),
        (["run", "--resume", UNKNOWN, "--no-wait"], "cannot be combined"),
        (["run", "flow.yaml", "--input", "{broken"], "--input is not JSON"),
        (["run", "flow.yaml", "--input", "plain"], "Texts need quotes"),
        (["run", "flow.yaml", "--input", "@missing.json"], "missing.json cannot be read"),
        (["run", "missing.yaml"], "missing.yaml:1:1: This file cannot be read"),
        (["run", "flow.yaml", "--app", "missing.py"], "there is no file missing.py"),
        (["run", "flow.yaml", "--app", "no_such_module_at_all"], "there is no module no_such_module_at_all"),
        (["start"], "Say what to start"),
        (["start", "flow.yaml", "--run", UNKNOWN], "Say what to start"),
        (["start", "flow.yaml", "--version", "2"], "--version is for published names"),
        (["start", "flow.yaml", "--idempotency-key", ""], "the idempotency key must have"),
        (["send", UNKNOWN, "name", "--payload", "["], "--payload is not JSON"),
        (["log", "export"], "Say which runs to export"),
        (["log", "export", "--all", "--output", "no/such/place"], "cannot be written"),
        (["log", "verify", "missing.jsonl"], "missing.jsonl cannot be read"),
        (["runs", "--db", "mysql://user:secret@host/db"], "'mysql' is not a database Stepkeep knows"),
        (["runs", "--db", "sqlite:///:memory:"], "keeps runs in a file"),
        (["demo", "--directory", "flow.yaml"], "flow.yaml cannot be made"),
    ],
)
def test_bad_usage_is_status_2_in_words_and_as_json(cli: Cli, arguments: list[str], says: str) -> None:
    cli("db", "migrate")
    said = cli(*arguments)
    assert (said.status, said.out) == (2, "")
    assert says in said.err
    assert "secret" not in said.err
    as_json = cli(*arguments, "--json")
    assert as_json.status == 2
    assert as_json.json["error"]["code"]
    assert as_json.json["error"]["message"]


@pytest.mark.parametrize("group", [[], ["log"], ["db"]])
def test_without_a_command_the_help_is_shown(cli: Cli, group: list[str]) -> None:
    said = cli(*group)
    assert (said.status, "Usage:" in said.out) == (2, True)
    assert said.err == f"error: Say which command. See {' '.join(['stepkeep', *group])} --help.\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", UNKNOWN],
        ["approve", UNKNOWN],
        ["reject", UNKNOWN, "gate"],
        ["cancel", UNKNOWN],
        ["rerun", UNKNOWN],
        ["retry", UNKNOWN],
        ["fork", UNKNOWN, "--from", "a"],
        ["send", UNKNOWN, "event"],
        ["complete", UNKNOWN, "step", "--token", "t"],
        ["run", "--resume", UNKNOWN],
        ["start", "--run", UNKNOWN],
        ["log", "export", UNKNOWN, "--output", "log.jsonl"],
        ["start", "no-such-workflow"],
    ],
)
def test_what_is_not_there_is_status_1(cli: Cli, arguments: list[str]) -> None:
    said = cli(*arguments, "--json")
    assert (said.status, said.json["error"]["code"]) == (1, "not_found")


def test_lines_and_one_object_cannot_share_standard_output(cli: Cli) -> None:
    said = cli("log", "export", "--all", "--json")
    assert (said.status, said.json["error"]["code"]) == (2, "invalid_input")
    assert "--output" in said.err


def test_a_bad_definition_is_refused_with_all_its_problems(cli: Cli, home: Path) -> None:
    (home / "bad.yaml").write_text("workflow: bad\nsteps:\n  - {name: a, uses: cli.work, tiemout: 5s}\n  - {name: a}\n")
    said = cli("run", "bad.yaml", "--app", HANDLERS)
    assert said.status == 2
    assert "bad.yaml:3:" in said.err
    assert "bad.yaml:4:" in said.err
    problems = cli("start", "bad.yaml", "--json").json["error"]["problems"]
    assert {problem["line"] for problem in problems} >= {3, 4}


def test_a_handler_that_is_not_there_is_a_problem_of_the_definition(cli: Cli, home: Path) -> None:
    (home / "typo.yaml").write_text("workflow: typo\nsteps:\n  - {name: a, uses: cli.wrok}\n")
    said = cli("run", "typo.yaml", "--app", HANDLERS)
    assert said.status == 2
    assert "cli.work" in said.err


def test_resuming_without_the_code_says_which_handlers_are_missing(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from stepkeep.definition.python.registry import Registry

    run = cli("start", "flow.yaml", "--json").json["run"]["id"]
    monkeypatch.setattr("stepkeep.engine.engine.default_registry", Registry())
    said = cli("run", "--resume", run)
    assert said.status == 2
    assert "cli.work" in said.err
    assert "--app" in said.err


def test_check_says_everything_and_advice_fails_only_when_asked(cli: Cli, home: Path) -> None:
    (home / "plain.yaml").write_text("workflow: plain\nsteps:\n  - {name: a, uses: anything}\n")
    advice = cli("check", "plain.yaml")
    assert advice.status == 0
    assert "plain.yaml:1:1: warning: " in advice.out
    assert cli("check", "plain.yaml", "--strict").status == 2
    assert cli("check", "plain.yaml", "--strict", "--json").json["ok"] is False
    assert cli("check", "flow.yaml", "--strict", "--app", HANDLERS).status == 0
    unknown = cli("check", "plain.yaml", "--app", HANDLERS, "--json")
    assert (unknown.status, unknown.json["ok"]) == (2, False)
    assert unknown.json["problems"][0]["line"] == 3


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (InvalidInput("no"), 2, "invalid_input"),
        (ExpressionError("no"), 2, "expression"),
        (NotFound("no"), 1, "not_found"),
        (Conflict("no", {"by": "ada"}), 1, "conflict"),
        (KeyReused("no"), 1, "key_reused"),
        (QuotaExceeded("no", "max_concurrent_runs"), 1, "quota_exceeded"),
        (NotAllowed("no", "disabled"), 1, "not_allowed"),
        (Fenced("no"), 1, "fenced"),
        (StoreUnavailable("no"), 1, "store_unavailable"),
        (SchemaMismatch("no"), 1, "schema_mismatch"),
        (DefinitionChanged("no"), 1, "definition_changed"),
        (PermissionDenied("no"), 1, "permission_denied"),
        (Contended("no"), 1, "contended"),
        (StoreError("no"), 1, "store"),
        (Broken("no"), 1, "broken"),
        (StepkeepError("no"), 1, "error"),
        (ZeroDivisionError(), 1, "unexpected"),
    ],
)
def test_every_error_has_a_code_and_a_status(error: Exception, status: int, code: str) -> None:
    failure = failure_of(error)
    assert (failure.status, failure.code) == (status, code)
    assert failure.message


def test_the_unexpected_is_one_line_and_a_hint_and_a_traceback_only_when_asked(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def burst() -> str:
        raise RuntimeError("burst")

    monkeypatch.setattr(answering, "actor", burst)
    assert main(["runs"]) == 1
    brief = capsys.readouterr().err
    assert brief.startswith("error: RuntimeError: burst\n")
    assert "--traceback" in brief
    assert "Traceback" not in brief
    assert main(["runs", "--traceback"]) == 1
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.setenv("STEPKEEP_TRACEBACK", "1")
    assert main(["runs", "--json"]) == 1
    said = capsys.readouterr()
    assert "Traceback" in said.err
    assert '"code": "unexpected"' in said.out


@pytest.mark.parametrize("path", [path for path, _ in commands(app)], ids=" ".join)
def test_every_command_explains_itself(cli: Cli, path: tuple[str, ...]) -> None:
    said = cli(*path, "--help")
    assert said.status == 0
    assert "--db" in said.out
    assert "--json" in said.out
    assert cli(*path, "-h").out == said.out


def test_the_version_is_that_of_the_package(cli: Cli) -> None:
    from importlib.metadata import version

    said = cli("--version")
    assert (said.status, said.out) == (0, f"stepkeep {version('stepkeep')}\n")


def test_a_password_in_a_url_is_not_repeated_in_hints() -> None:
    from stepkeep.cli.settings import Settings

    for url in (
        "postgresql://ada:s3cret@host/db",
        "postgresql://ada@host/db?password=s3cret",
        "postgresql://a:s3cret#@h",
    ):
        assert "s3cret" not in Settings(db=url, typed=frozenset({"db"})).command("runs")


@pytest.mark.parametrize(
    "url",
    [
        *(f"postgresql://u:SECRET{mark}x@h/db" for mark in "#/?"),
        *("u:SECRET@h/db", "postgresql://u:SECRET@[::1/db", "postgresql://u:SECRET@h:port/db"),
        *("postgresql://u:SECRET@h:99999/db", "sqlite:////", "sqlite:///x.db?mode=ro"),
    ],
)
def test_a_malformed_database_url_is_bad_usage_and_is_never_quoted(cli: Cli, home: Path, url: str) -> None:
    for command in (["runs"], ["run", "flow.yaml"], ["db", "status"], ["show", UNKNOWN, "--json"]):
        said = cli(*command, "--db", url, "--traceback")
        assert said.status == 2, said
        assert "SECRET" not in said.out + said.err
    assert not list(home.glob("x.db*"))


NUMBERS = [
    (path, parameter)
    for path, command in commands(app)
    for parameter in command.params
    if any(word in str(parameter.type_descriptor.annotation) for word in ("int", "float"))
]


@pytest.mark.parametrize(("path", "parameter"), NUMBERS, ids=lambda value: str(getattr(value, "name", value)))
def test_every_option_that_takes_a_number_has_bounds(cli: Cli, path: tuple[str, ...], parameter: Any) -> None:
    assert parameter.min is not None
    assert parameter.max is not None
    beyond = [str(parameter.max + 1), str(parameter.min - 1), "1e999", "nan", "inf", "-inf", "", "9" * 400]
    for value in beyond:
        is_option = parameter.opts[0].startswith("-")
        said = cli(*path, *([f"{parameter.opts[0]}={value}"] if is_option else ["--", value]))
        assert (said.status, said.out) == (2, ""), value
        assert parameter.opts[0] in said.err.lower()
