"""The rules that seed 004 names: the command of each, and the rules that a type of task brings. Tables, and their use.

A workstream may give a rule another command, or name rules of its own (`rule_commands`). The command is part of the
definition, so that a run knows what was checked. `build` and `checks` call it; nothing runs here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import UNSET

from stepkeep.definition.expressions.template_text import OPENING
from stepkeep.dialects.workstream.written import RuleCommandBlock, TaskBlock
from stepkeep.kernel.definition import SECOND, Command, Rule

FINAL_TIMEOUT = 600 * SECOND
"""How long a command of the final validation may take; that of a task has what its attempt has."""


FILE_TIMEOUT = 10 * SECOND


class NamedRule(NamedTuple):
    """A command that must end with 0; if it is `silent`, it must also print nothing."""

    argv: tuple[str, ...]
    silent: bool = False


NAMED_RULES: Mapping[str, NamedRule] = {
    "git_clean": NamedRule(("git", "status", "--porcelain"), silent=True),
    "tests_passing": NamedRule(("pytest", "-q")),
    "tests_still_passing": NamedRule(("pytest", "-q")),
    "no_lint_errors": NamedRule(("ruff", "check", ".")),
    "no_security_issues": NamedRule(("bandit", "-q", "-r", ".")),
}

SAME_AS = {"tests_still_passing": "tests_passing"}
"""A rule without a command of its own that follows another one's."""


class Brought(NamedTuple):
    """The rules of a task that writes none, before and after its execution."""

    pre: tuple[str, ...] = ()
    post: tuple[str, ...] = ()


BROUGHT: Mapping[str, Brought] = {
    "aider": Brought(pre=("git_clean",), post=("no_lint_errors",)),
    "pytest": Brought(post=("tests_passing",)),
    "lint": Brought(),
    "custom": Brought(),
}

OWN_RESULT: Mapping[str, frozenset[str]] = {
    "pytest": frozenset({"tests_passing", "tests_still_passing"}),
    "lint": frozenset({"no_lint_errors"}),
}
"""Rules that the execution of a task of this type has answered by itself; its tests do not run twice."""

ENDED_WELL = "${{ output.exit_code == 0 }}"

Commands = Mapping[str, RuleCommandBlock]


def rules_before(task: TaskBlock) -> list[str]:
    """The rules before the execution: as written, or as the type brings them."""
    written = task.validation_rules.pre_execution
    return list(BROUGHT[task.type].pre) if written is None else written


def rules_after(task: TaskBlock) -> list[str]:
    """The rules after the execution: as written, or as the type brings them."""
    written = task.validation_rules.post_execution
    return list(BROUGHT[task.type].post) if written is None else written


def pre_of(task: TaskBlock, commands: Commands, directory: str | None) -> tuple[Rule, ...]:
    timeout = task.execution.timeout_seconds
    context = task.context_requirements
    files = () if context is None else context.required_files
    return (
        *(_file_is_there(file, directory) for file in files),
        *(_rule(text, commands, directory, longest=timeout) for text in rules_before(task)),
    )


def _file_is_there(file: str, directory: str | None) -> Rule:
    """A file that the task must see. Without it the task fails before its program runs, and is not tried again."""
    return Rule(
        name=f"required_file:{file}",
        program=Command(argv=("test", "-e", file), cwd=directory),
        message=f"insufficient_context: the required file {file} is not there",
        timeout=FILE_TIMEOUT,
    )


def post_of(task: TaskBlock, commands: Commands, directory: str | None) -> tuple[Rule, ...]:
    timeout = task.execution.timeout_seconds
    answered = OWN_RESULT.get(task.type, frozenset())
    return tuple(
        Rule(name=text, expression=ENDED_WELL)
        if text in answered and _written(text, commands) is None
        else _rule(text, commands, directory, longest=timeout)
        for text in rules_after(task)
    )


def final_rules(texts: Iterable[str], commands: Commands, directory: str | None = None) -> tuple[Rule, ...]:
    """The rules of the whole workstream."""
    return tuple(_rule(text, commands, directory, otherwise=FINAL_TIMEOUT) for text in texts)


def _written(name: str, commands: Commands) -> RuleCommandBlock | None:
    return commands.get(name) or commands.get(SAME_AS.get(name, ""))


def _rule(
    text: str, commands: Commands, directory: str | None, *, longest: int | None = None, otherwise: int | None = None
) -> Rule:
    if OPENING in text:
        return Rule(expression=text)
    block, known = _written(text, commands), NAMED_RULES.get(text)
    timeout = otherwise if block is None or block.timeout_seconds is None else block.timeout_seconds
    if longest is not None and timeout is not None:
        timeout = min(timeout, longest)
    if block is not None:
        argv, silent = tuple(block.command), block.silent
        directory = block.working_directory or directory
    else:
        assert known is not None
        argv, silent = known
    return Rule(
        name=text,
        program=Command(argv=argv, cwd=directory),
        silent=True if silent else UNSET,
        timeout=UNSET if timeout is None else timeout,
    )
