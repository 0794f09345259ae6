"""The steps that a workstream's repository adds around its tasks: a worktree first; a merge plan, the merge and the
cleanup last. Seed 004, validating → completed: merge, archive, clean up the worktree.

Tables and checks; nothing runs here. `build` and `front` call it, and the worker has the actions.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec.structs import replace

from stepkeep.definition.expressions.template_text import OPENING
from stepkeep.definition.findings import Finding, Path
from stepkeep.definition.native.build import rule_capabilities
from stepkeep.definition.python.registry import WORKTREE
from stepkeep.dialects.workstream.written import RepositoryBlock, TaskBlock
from stepkeep.kernel.definition import (
    SECOND,
    Backoff,
    Dependency,
    Effect,
    Handler,
    OnExhausted,
    Retry,
    Rule,
    StepDefinition,
)
from stepkeep.kernel.machine.states import RETRIED_BY_DEFAULT, OnFailure

CREATE, PLAN, MERGE, CLEANUP = "worktree", "merge_plan", "merge", "cleanup"
OWN_STEPS: Final = (CREATE, PLAN, MERGE, CLEANUP)

TIMEOUT = 600 * SECOND
RETRY = Retry(
    max_attempts=4,
    max_losses=10,
    backoff=Backoff.EXPONENTIAL,
    initial=2 * SECOND,
    factor=2.0,
    max=30 * SECOND,
    jitter=0.0,
    on=tuple(sorted(RETRIED_BY_DEFAULT)),
)
"""Repeating an action is safe, and a worker that is lost in the middle of one is no reason to give the work up."""

ABOUT: Mapping[str, str] = {
    CREATE: "Creates the worktree and the branch of this run.",
    PLAN: "Commits what the tasks left, says what a merge would bring, and runs the final validation.",
    MERGE: "Merges the branch. A conflict holds this step until a person has settled it.",
    CLEANUP: "Removes the worktree and the merged branch.",
}
WORKTREE_PATH: Final = f"{OPENING} steps.{CREATE}.output.path }}}}"

SAMPLE_RUN = "01a1e12c-57d6-75bf-abba-e99e88c4e41f"
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f~^:?*\[\\{}]|\.\.|@\{|//|\.lock(/|$)|(^|/)\.|\.(/|$)|^/|/$|^-|^@$")
LONGEST_BRANCH = 200


# -- build -----------------------------------------------------------------------------------------------------------
def program_directory(directory: str | None, repository: RepositoryBlock | None) -> str | None:
    """Where a program runs: in the worktree, or where the task says if there is none."""
    if repository is None or (directory is not None and directory.startswith("/")):
        return directory
    return WORKTREE_PATH if directory is None else f"{WORKTREE_PATH}/{directory}"


def with_repository(
    workstream: str, repository: RepositoryBlock, tasks: tuple[StepDefinition, ...], final: tuple[Rule, ...]
) -> tuple[StepDefinition, ...]:
    """The tasks between the steps of their repository."""
    inside = tuple(task if task.depends_on else replace(task, depends_on=_after(CREATE)) for task in tasks)

    def action(name: str, verb: str, *after: str, **fields: Any) -> StepDefinition:
        capabilities = {*repository.capabilities, *fields.pop("capabilities", ())}
        return StepDefinition(
            name=name,
            order=0,
            executor=Handler(name=f"{WORKTREE}{verb}"),
            inputs={
                "repository": repository.path,
                "base": repository.base,
                "branch": repository.branch,
                "worktrees": repository.worktrees,
                "workstream": workstream,
            },
            depends_on=_after(*after),
            timeout=TIMEOUT,
            retry=RETRY,
            on_failure=OnFailure.ABORT,
            effect=Effect.WRITE,
            capabilities=tuple(sorted(capabilities)),
            description=ABOUT[name],
            **fields,
        )

    return (
        action(CREATE, "create"),
        *inside,
        action(PLAN, "plan", *(task.name for task in tasks), rules=final, capabilities=rule_capabilities(final)),
        action(MERGE, "merge", PLAN, on_exhausted=OnExhausted.HOLD_REQUIRED),
        action(CLEANUP, "cleanup", MERGE),
    )


def _after(*names: str) -> tuple[Dependency, ...]:
    return tuple(Dependency(step=name) for name in names)


# -- checks ----------------------------------------------------------------------------------------------------------
def check_repository(data: Mapping[str, Any], tasks: Mapping[Path, TaskBlock]) -> Iterator[Finding]:
    """Everything about a repository that can be refused before a run starts."""
    block = data.get("repository")
    if not isinstance(block, dict):
        return
    yield from _check_paths(block)
    yield from _check_names(block, str(data.get("workstream_id", "")))
    for path, task in tasks.items():
        if task.task_id in OWN_STEPS:
            said = f"`{task.task_id}` is a step that the repository brings."
            yield Finding((*path, "task_id"), said, "Give the task another id.")
        directory = task.execution.working_directory
        if directory is not None and not directory.startswith("/"):
            parts = posixpath.normpath(directory).split("/")
            if OPENING in directory or ".." in parts or ".git" in parts:
                said = "A relative `working_directory` stays within the worktree."
                hint = "Write a plain path below it, without `..`, `.git` and expressions."
                yield Finding((*path, "execution", "working_directory"), said, hint)
    for name, place_ in _rule_directories(data):
        said = "A relative `working_directory` of a rule has no meaning beside a repository."
        yield Finding(("rule_commands", name, "working_directory"), f"{said} ({place_})", "Leave it out.")


def _rule_directories(data: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    commands = data.get("rule_commands")
    for name, given in commands.items() if isinstance(commands, dict) else ():
        directory = given.get("working_directory") if isinstance(given, dict) else None
        if isinstance(directory, str) and not directory.startswith("/"):
            yield name, directory


def _check_paths(block: Mapping[str, Any]) -> Iterator[Finding]:
    path, worktrees = block.get("path"), block.get("worktrees")
    for key, text in (("path", path), ("worktrees", worktrees)):
        if not isinstance(text, str):
            continue
        if OPENING in text:
            said = f"`{key}` is taken as it is written: the definition decides which repository is used."
            yield Finding(("repository", key), said, "Write the path without `${{ }}`.")
        elif not text.startswith("/") or "\0" in text or posixpath.normpath(text) != text.rstrip("/"):
            said = f"`{key}` is no absolute path in its plain form."
            yield Finding(("repository", key), said, "Write it from `/` on, without `.`, `..` and double slashes.")
    if isinstance(path, str) and isinstance(worktrees, str) and f"{worktrees}/".startswith(f"{path.rstrip('/')}/"):
        said = "The worktrees would be files of the repository."
        yield Finding(("repository", "worktrees"), said, "Choose a folder beside it.")


def _check_names(block: Mapping[str, Any], workstream: str) -> Iterator[Finding]:
    base, branch = block.get("base", "main"), block.get("branch", "{run_id}")
    if isinstance(base, str) and not is_branch(base):
        yield Finding(("repository", "base"), f"`{base}` is no name of a branch.", "Write it as `git branch` does.")
    if not isinstance(branch, str):
        return
    if "{run_id}" not in branch:
        said = "Every run needs a branch of its own, and this name is the same for all."
        yield Finding(("repository", "branch"), said, "Add `{run_id}`, as in `work/{run_id}`.")
    elif not is_branch(branch.replace("{run_id}", SAMPLE_RUN).replace("{workstream_id}", workstream)):
        said = f"`{branch}` gives no name of a branch."
        hint = "Only `{run_id}` and `{workstream_id}` are filled in; git refuses spaces, `..`, `~`, `^`, `:` and more."
        yield Finding(("repository", "branch"), said, hint)


def is_branch(name: str) -> bool:
    """Whether git takes this as the name of a branch. Stricter than git in what could be read as an option."""
    return bool(name) and len(name) <= LONGEST_BRANCH and _FORBIDDEN.search(name) is None and name != "HEAD"
