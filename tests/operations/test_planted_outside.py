"""Bugs planted in settings, inbound hooks, archives and worktrees: each turns a test of the ordinary suite red.

The simulator sees neither files nor signatures, so these bugs are hunted by the tests that hold the promise.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepkeep.worker.worktrees.git import GitProblemError
from stepkeep_lab.simulation.mutation import Edit, Mutant, planted
from tests.operations import test_hooks as hooks
from tests.operations import test_run_archive as archives
from tests.suites import short_and_all
from tests.worker import test_worktrees as worktrees

Hunter = Callable[..., Any]

RED = (AssertionError, pytest.fail.Exception, LookupError, GitProblemError)
"""How a hunter fails."""


def _bug(name: str, what: str, where: str, old: str, new: str) -> Mutant:
    return Mutant(name, what, (Edit(where, old, new),))


BUGS: tuple[tuple[Mutant, Hunter], ...] = (
    (
        _bug(
            "removal-not-saved",
            "a setting that was removed stays",
            "operations.settings:change_setting",
            "if content != before:",
            "if content is not None and content != before:",
        ),
        hooks.test_a_removed_or_unknown_hook_and_a_missing_secret_are_typed_errors,
    ),
    (
        _bug(
            "first-setting-stays",
            "a setting that was saved once is never replaced",
            "operations.settings:change_setting",
            "if content != before:",
            "if before is None:",
        ),
        hooks.test_a_secret_is_replaced_without_a_gap,
    ),
    (
        _bug(
            "any-signature",
            "a delivery is taken whatever its signature is",
            "network.signatures:_any_equal",
            "equal |= hmac.compare_digest(one, other)",
            "equal = True",
        ),
        hooks.test_what_is_not_genuine_changes_nothing,
    ),
    (
        _bug(
            "delivery-twice",
            "each arrival of a delivery has an id of its own",
            "definition.native.hooks:receive",
            "once = f\"hook:{hook.hook}:",
            "once = f\"hook:{hook.hook}:{__import__('uuid').uuid4()}:",
        ),
        hooks.test_a_delivery_starts_one_run_however_often_it_comes,
    ),
    (
        _bug(
            "one-secret",
            "only the newest secret of a hook verifies",
            "operations.messages.hooks:decide_delivery",
            "for one in hook.secrets]",
            "for one in hook.secrets[:1]]",
        ),
        hooks.test_a_secret_is_replaced_without_a_gap,
    ),
    (
        _bug(
            "live-archived",
            "a run is archived before it has ended",
            "operations.logs.run_archive:archive_run",
            "if run.state not in RUN_TERMINAL:",
            "if False:",
        ),
        archives.test_a_run_that_is_alive_is_not_archived,
    ),
    (
        _bug(
            "any-ending-archived",
            "runs are archived whose ending the workflow does not name",
            "operations.logs.run_archive:ArchiveSweeper._of",
            " or status.state not in policy.on",
            "",
        ),
        archives.test_only_the_endings_that_are_declared_are_archived,
    ),
    (
        Mutant(
            "floor-above-live",
            "a sweep notes that it has seen all, although a run is alive that it must archive later",
            (
                Edit("operations.logs.run_archive:ArchiveSweeper._new_floor", " - LATE_START", ""),
                Edit(
                    "operations.logs.run_archive:ArchiveSweeper._new_floor",
                    "oldest = min(oldest, records[-1].run.id)",
                    "oldest = max(oldest, records[-1].run.id)",
                ),
            ),
        ),
        archives.test_ended_runs_are_archived_once_each_as_a_verified_bundle,
    ),
    (
        _bug(
            "link-followed",
            "a link in the place of a worktree is followed",
            "worker.worktrees.actions:_remove_unfinished",
            "if _exists(place.path):",
            "if not os.path.islink(place.path):",
        ),
        worktrees.test_a_link_in_the_place_of_a_worktree_is_not_followed,
    ),
    (
        _bug(
            "branch-taken",
            "a branch that belongs to no run is taken",
            "worker.worktrees.actions:_create_branch",
            "if await git.commit_of(place.head_ref) is not None:",
            "if False:",
        ),
        worktrees.test_a_branch_that_belongs_to_nobody_is_not_taken,
    ),
    (
        _bug(
            "conflicts-hidden",
            "a merge plan names no conflict",
            "worker.worktrees.actions:_merged_tree",
            "if merged.status == 1 else []",
            "if merged.status == 2 else []",
        ),
        worktrees.test_a_plan_names_commits_files_and_conflicts,
    ),
    (
        _bug(
            "checkout-overwritten",
            "changes in a checked out base are overwritten by a merge",
            "worker.worktrees.actions:_move_checkout",
            "if left := (await checkout(\"status\", \"--porcelain\", \"-z\", \"--untracked-files=no\")).parts:",
            "await checkout(\"reset\", \"--hard\")\n    if left := ():",
        ),
        worktrees.test_changes_in_a_checked_out_base_are_never_overwritten,
    ),
    (
        _bug(
            "later-commits-dropped",
            "cleanup removes a worktree whose branch has later commits",
            "worker.worktrees.actions:cleanup",
            "if later:",
            "if False:",
        ),
        worktrees.test_cleanup_keeps_a_branch_with_later_commits,
    ),
)  # fmt: skip

NAMES = [bug.name for bug, _ in BUGS]
QUICK = ("removal-not-saved", "delivery-twice", "any-ending-archived", "conflicts-hidden")


@pytest.mark.parametrize("name", short_and_all(QUICK, NAMES))
def test_a_planted_bug_turns_a_test_red(name: str, tmp_path: Path) -> None:
    bug, hunter = next(one for one in BUGS if one[0].name == name)
    with planted(bug), pytest.raises(RED):
        _play(hunter, tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_a_planted_bug_fits_the_code(name: str) -> None:
    bug, _ = next(one for one in BUGS if one[0].name == name)
    with planted(bug):
        assert bug.edits


def _play(hunter: Hunter, tmp_path: Path) -> None:
    known = {"database_url": f"sqlite:///{tmp_path}/planted.db", "tmp_path": tmp_path}
    found = hunter(**{name: known[name] for name in inspect.signature(hunter).parameters})
    if inspect.iscoroutine(found):
        asyncio.run(found)
