"""Seed 004's named rules: their commands, what each type of task brings, and what they find in real repositories."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET
from tests.seeds.workstream import document, examine, judged, task, workstream
from tests.workbench import TENANT
from tests.worker.bed import Bed, bed_on

from stepkeep.dialects.workstream.named_rules import BROUGHT, NAMED_RULES
from stepkeep.kernel.definition import SECOND, Command, Rule, decode_definition, encode_definition
from stepkeep.kernel.machine.states import Category, RunState, StepState
from stepkeep.operations.logs.log import export_run
from stepkeep.operations.runs.projected import describe_run_as


# -- what is written becomes -------------------------------------------------------------------------------------------
def test_every_rule_that_the_seed_names_has_a_command() -> None:
    """Companions of 004: rule names."""
    assert set(NAMED_RULES) == {
        "git_clean",
        "tests_passing",
        "tests_still_passing",
        "no_lint_errors",
        "no_security_issues",
    }
    definition = workstream(task("a", validation_rules={"pre_execution": list(NAMED_RULES)}, working_directory="src"))
    [step] = definition.steps
    assert step.pre is not UNSET
    for rule, (name, named) in zip(step.pre, NAMED_RULES.items(), strict=True):
        assert (rule.name, rule.program) == (name, Command(argv=named.argv, cwd="src"))
        assert rule.silent is (True if named.silent else UNSET)
    assert decode_definition(encode_definition(definition)) == definition


@pytest.mark.parametrize("kind", BROUGHT)
def test_a_task_brings_the_rules_of_its_type_unless_it_writes_its_own(kind: str) -> None:
    """Companions of 004: "aider pre git_clean / post no_lint_errors; pytest post tests_passing; lint none"."""
    expected = {
        "aider": (["git_clean"], ["no_lint_errors"]),
        "pytest": ([], ["tests_passing"]),
        "lint": ([], []),
        "custom": ([], []),
    }[kind]
    [step] = workstream(task("a", type=kind)).steps
    assert ([rule.name for rule in step.pre or ()], [rule.name for rule in step.rules]) == expected
    none = {"pre_execution": [], "post_execution": []}
    [step] = workstream(task("a", type=kind, validation_rules=none)).steps
    assert (step.pre, step.rules) == (UNSET, ())
    [step] = workstream(task("a", type=kind, post=["no_security_issues"])).steps
    assert [rule.name for rule in step.pre or ()] == expected[0]
    assert [rule.name for rule in step.rules] == ["no_security_issues"]
    assert not [one for one in examine(document(task("a", type=kind))).warnings if "type" in one.message]


def test_a_task_that_runs_tests_does_not_run_them_twice_unless_the_file_says_so() -> None:
    [step] = workstream(task("a", command="pytest -q", type="pytest")).steps
    assert step.rules == (Rule(name="tests_passing", expression="${{ output.exit_code == 0 }}"),)
    [step] = workstream(task("a", command="pytest", type="pytest"), rule_commands={"tests_passing": "make test"}).steps
    assert step.rules == (Rule(name="tests_passing", program=Command(argv=("make", "test"))),)
    [step] = workstream(task("a", type="lint", post=["no_lint_errors", "tests_passing"])).steps
    assert [rule.program for rule in step.rules] == [UNSET, Command(argv=("pytest", "-q"))]


def test_a_file_gives_rules_their_commands_and_names_rules_of_its_own() -> None:
    definition = workstream(
        task("a", post=["tests_still_passing", "typed"], working_directory="src", timeout_seconds=30),
        validation_rules={"post_execution": ["typed", "tests_passing", "${{ steps.a.output.exit_code == 0 }}"]},
        rule_commands={
            "tests_passing": {"command": "make test", "timeout_seconds": 60},
            "typed": {"command": ["mypy", "."], "working_directory": "/repo", "silent": True},
        },
    )
    [step] = definition.steps
    make, typed = Command(argv=("make", "test"), cwd="src"), Command(argv=("mypy", "."), cwd="/repo")
    assert step.rules == (
        Rule(name="tests_still_passing", program=make, timeout=30 * SECOND),
        Rule(name="typed", program=typed, silent=True),
    )
    assert definition.rules == (
        Rule(name="typed", program=typed, silent=True, timeout=600 * SECOND),
        Rule(name="tests_passing", program=Command(argv=("make", "test")), timeout=60 * SECOND),
        Rule(expression="${{ steps.a.output.exit_code == 0 }}"),
    )
    assert definition.check_capabilities == ("runs:commands",)
    assert step.capabilities == ()


@pytest.mark.parametrize(
    ("commands", "where", "said"),
    [
        ({"typed": "mypy ${{ input.x }}"}, "rule_commands.typed", "The command of a rule is taken as it is written."),
        ({"typed": [" "]}, "rule_commands.typed", "The program of a rule is empty."),
        ({"typed": {"command": "mypy", "shell": True}}, "rule_commands.typed.shell", "There is no key `shell` here."),
        ({"typed": {}}, "rule_commands.typed", ""),
        ({"a b": "true"}, "rule_commands", ""),
        ({"typed": "mypy 'x"}, "rule_commands.typed", ""),
    ],
)
def test_a_command_that_cannot_be_is_refused_at_its_place(commands: Any, where: str, said: str) -> None:
    problems = examine(document(task("a"), rule_commands=commands)).problems
    assert [one for one in problems if one.path.startswith(where) and said in one.message], problems


def test_a_command_that_no_rule_uses_is_warned_about() -> None:
    warnings = examine(document(task("a"), rule_commands={"typed": "mypy"})).ignored
    assert [one.message for one in warnings] == ["No task and no final validation uses the rule `typed`."]


# -- real repositories -------------------------------------------------------------------------------------------------
def _repository(path: Path) -> Path:
    path.mkdir()
    (path / "app.py").write_text("x = 1\n")
    for argv in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        _git(path, *argv)
    return path


def _git(path: Path, *argv: str) -> None:
    who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    subprocess.run(["git", *argv], cwd=path, check=True, env={**os.environ, **who}, capture_output=True)


def _program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


async def _ended(bed: Bed, written: dict[str, Any]) -> tuple[RunState, str]:
    """Run a workstream to its end; its log in the seed's words satisfies the judge."""
    definition = examine(written).definition
    assert definition is not None, examine(written).problems
    run_id = await bed.start_again(await bed.publish(definition))
    state = await bed.finish(run_id)
    lines = [line async for line in export_run(bed.transactor, run_id, tenant=TENANT, dialect="workstream")]
    assert judged(lines) == []
    return state, run_id


async def test_git_clean_lets_a_task_run_in_a_clean_repository_only(database_url: str, tmp_path: Path) -> None:
    """Pre-execution rules of a task of type aider; the task fails without having run."""

    async with bed_on(database_url) as bed:
        clean, dirty, none = _repository(tmp_path / "clean"), _repository(tmp_path / "dirty"), tmp_path / "none"
        (dirty / "new.py").write_text("y = 2\n")
        none.mkdir()
        for number, (place, holds, why) in enumerate(
            (
                (clean, True, ""),
                (dirty, False, "NOT_RUN: git_clean: it printed: ?? new.py"),
                (none, False, "NOT_RUN: git_clean: exit status 128: fatal: not a git repository"),
            )
        ):
            edit = task(
                "edit",
                command=["touch", "ran"],
                type="aider",
                working_directory=str(place),
                post=[],
                critical=True,
            )
            state, run_id = await _ended(bed, document(edit, workstream_id=f"ws-{number}"))
            assert state is (RunState.SUCCEEDED if holds else RunState.FAILED)
            assert (place / "ran").exists() is holds
            row = (await bed.steps(run_id))[0]
            assert (row.error or "").startswith(why)
            if not holds:
                assert (row.state, row.category, row.attempts) == (StepState.FAILED, Category.VALIDATION, 1)
            shown = await describe_run_as(bed.transactor, run_id, "workstream", tenant=TENANT)
            rules = {"pre_execution": ["git_clean"], "post_execution": []}
            assert shown["tasks"][0]["validation_rules"] == rules


async def test_rules_after_the_task_and_at_the_end_run_the_commands_of_the_file(
    database_url: str, tmp_path: Path
) -> None:
    """Post-execution rules: validating → failed; the final validation: executing → validating → failed."""

    async with bed_on(database_url) as bed:
        place = _repository(tmp_path / "repo")
        good, bad = _program(tmp_path / "good", "exit 0"), _program(tmp_path / "bad", "echo 1 failed; exit 1")
        commands = {"tests_passing": [good], "no_lint_errors": [bad]}
        for number, (post, final, state) in enumerate(
            (
                (["tests_passing"], ["tests_still_passing"], RunState.SUCCEEDED),
                (["tests_passing", "no_lint_errors"], [], RunState.FAILED),
                (["tests_passing"], ["no_lint_errors"], RunState.FAILED),
            )
        ):
            written = document(
                task("edit", post=post, working_directory=str(place), critical=True),
                workstream_id=f"ws-{number}",
                validation_rules={"post_execution": final},
                rule_commands=commands,
            )
            found, run_id = await _ended(bed, written)
            assert found is state
            if state is RunState.FAILED:
                run = await bed.run(run_id)
                expected = "no_lint_errors: exit status 1: 1 failed"
                assert (run.category, run.error) == (Category.VALIDATION, expected)
