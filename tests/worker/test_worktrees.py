"""Actions on git worktrees, without a database: repeated, interrupted, in odd repositories, with hostile names."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.seeds.workstream import document, examine, task
from tests.suites import in_proof
from tests.worker.repositories import change_main, commit, files_of, git, killer, make_repository, refs_of

from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.dialects.workstream.repository import is_branch
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.states import Category
from stepkeep.worker.executors.command import CommandPolicy
from stepkeep.worker.executors.worktree import may_use_git
from stepkeep.worker.identity import identity_of
from stepkeep.worker.worktrees.actions import ACTIONS, Worktree, place_of
from stepkeep.worker.worktrees.git import GitProblemError, locked

RUN = "01a1e12c-57d6-75bf-abba-e99e88c4e41f"
ROOT = Path(__file__).parents[2]


def place_in(repository: Path, **fields: Any) -> Worktree:
    given = {"repository": str(repository), "base": "main", "branch": "work/{run_id}", "worktrees": None}
    return place_of({**given, "workstream": "ws", **fields}, RUN)


def act(name: str, place: Worktree) -> dict[str, Any]:
    return asyncio.run(ACTIONS[name](place, None))  # type: ignore[arg-type]


def refused(name: str, place: Worktree) -> GitProblemError:
    with pytest.raises(GitProblemError) as problem:
        act(name, place)
    return problem.value


def prepared(tmp_path: Path, name: str, *, bare: bool = True) -> Worktree:
    """A run that is about to take this action."""
    place = place_in(make_repository(tmp_path / "repository", bare=bare))
    if name == "create":
        return place
    act("create", place)
    (Path(place.path) / "new.txt").write_text("new")
    for earlier in ("plan", "merge", "cleanup"):
        if name == earlier:
            break
        act(earlier, place)
    return place


@pytest.mark.parametrize("name", ["create", "plan", "merge", "cleanup"])
def test_an_action_that_is_repeated_changes_nothing_more(tmp_path: Path, name: str) -> None:
    place = prepared(tmp_path, name)
    first = act(name, place)
    before = refs_of(Path(place.repository)), git(place.repository, "rev-parse", "main")
    second = act(name, place)
    assert {**second, "committed": None} == {**first, "committed": None}
    assert (refs_of(Path(place.repository)), git(place.repository, "rev-parse", "main")) == before


PLAY = """
import asyncio, msgspec, sys
from stepkeep.worker.worktrees.actions import ACTIONS, Worktree
asyncio.run(ACTIONS[sys.argv[1]](msgspec.json.decode(sys.argv[2], type=Worktree), None))
"""

CALLS = {"create": 11, "plan": 13, "merge": 15, "cleanup": 10}
KILLS = [(name, at, when) for name, most in CALLS.items() for at in range(1, most + 1) for when in ("before", "after")]
QUICK = {("create", 9, "after"), ("plan", 5, "after"), ("merge", 13, "after"), ("cleanup", 5, "after")}


@pytest.mark.parametrize(("name", "at", "when"), [one if one in QUICK else in_proof(*one) for one in KILLS])
def test_an_action_killed_at_any_call_of_git_is_completed_by_the_next(
    tmp_path: Path, name: str, at: int, when: str
) -> None:
    place = prepared(tmp_path, name)
    command = [sys.executable, "-c", PLAY, name, msgspec.json.encode(place).decode()]
    ended = subprocess.run(command, env=killer(tmp_path / "bin", at, when), cwd=ROOT, check=False, timeout=60)
    assert ended.returncode == -9
    for left in ("create", "plan", "merge", "cleanup")[list(CALLS).index(name) :]:
        act(left, place)
        if left == "create":
            (Path(place.path) / "new.txt").write_text("new")
    assert files_of(Path(place.repository)) == {"README": "first", "new.txt": "new"}
    assert refs_of(Path(place.repository)) == ["refs/heads/main"]
    assert not os.path.lexists(place.path)


def test_a_checked_out_base_moves_with_its_files(tmp_path: Path) -> None:
    place = prepared(tmp_path, "merge", bare=False)
    act("merge", place)
    assert (Path(place.repository) / "new.txt").read_text() == "new"
    assert git(place.repository, "status", "--porcelain") == ""


def test_changes_in_a_checked_out_base_are_never_overwritten(tmp_path: Path) -> None:
    place = prepared(tmp_path, "merge", bare=False)
    readme = Path(place.repository) / "README"
    readme.write_text("mine\n")
    problem = refused("merge", place)
    assert (problem.category, problem.final) == (Category.CONFLICT, False)
    assert "changes that are not committed: README" in str(problem)
    assert readme.read_text() == "mine\n"
    commit(Path(place.repository), {}, "mine")
    act("merge", place)
    assert files_of(Path(place.repository)) == {"README": "mine", "new.txt": "new"}


def test_a_plan_names_commits_files_and_conflicts(tmp_path: Path) -> None:
    place = prepared(tmp_path, "plan")
    change_main(Path(place.repository), {"new.txt": "theirs", "other.txt": "x"})
    plan = act("plan", place)
    assert [one["subject"] for one in plan["commits"]] == [f"ws: work of run {RUN}"]
    assert plan["files"] == [{"status": "A", "file": "new.txt"}]
    assert (plan["conflicts"], plan["committed"], plan["cut"]) == (["new.txt"], True, False)


def test_a_branch_that_belongs_to_nobody_is_not_taken(tmp_path: Path) -> None:
    place = prepared(tmp_path, "create")
    git(place.repository, "branch", place.branch, "main")
    problem = refused("create", place)
    assert problem.final
    assert "exists and belongs to no run" in str(problem)


def test_a_worktree_that_a_task_moved_elsewhere_is_not_committed_to(tmp_path: Path) -> None:
    place = prepared(tmp_path, "plan")
    other = make_repository(tmp_path / "other", bare=False)
    before = git(other, "rev-parse", "HEAD")
    (Path(place.path) / ".git").write_text(f"gitdir: {other}/.git\n")
    assert "no longer a worktree" in str(refused("plan", place))
    assert git(other, "rev-parse", "HEAD") == before


def test_a_link_in_the_place_of_a_worktree_is_not_followed(tmp_path: Path) -> None:
    place = prepared(tmp_path, "create")
    treasure = tmp_path / "treasure"
    treasure.mkdir()
    (treasure / "gold").write_text("gold")
    Path(place.path).parent.mkdir()
    Path(place.path).symlink_to(treasure)
    act("create", place)
    assert (treasure / "gold").read_text() == "gold"
    assert not Path(place.path).is_symlink()


def test_hooks_of_the_repository_do_not_run(tmp_path: Path) -> None:
    place = prepared(tmp_path, "create")
    for hook in ("post-checkout", "pre-commit", "post-commit", "reference-transaction", "post-merge"):
        script = Path(place.repository) / "hooks" / hook
        script.write_text(f"#!/bin/sh\ntouch {tmp_path}/hooked\nexit 1\n")
        script.chmod(0o755)
    act("create", place)
    (Path(place.path) / "new.txt").write_text("new")
    for name in ("plan", "merge", "cleanup"):
        act(name, place)
    assert not (tmp_path / "hooked").exists()


@pytest.mark.parametrize("make", ["nothing", "folder", "inside"])
def test_a_folder_that_is_no_repository_is_refused(tmp_path: Path, make: str) -> None:
    path = tmp_path / "place"
    if make == "folder":
        path.mkdir()
    if make == "inside":
        path = make_repository(tmp_path / "place", bare=False) / "sub"
        path.mkdir()
    problem = refused("create", place_in(path))
    assert (problem.category, problem.final) == (Category.VALIDATION, True)


def test_a_base_that_does_not_exist_is_named(tmp_path: Path) -> None:
    place = place_in(make_repository(tmp_path / "repository"), base="trunk")
    assert "the base branch trunk does not exist" in str(refused("create", place))


def test_cleanup_keeps_a_branch_with_later_commits(tmp_path: Path) -> None:
    place = prepared(tmp_path, "cleanup")
    commit(Path(place.path), {"late.txt": "late"}, "late")
    told = act("cleanup", place)
    assert (told["removed"], told["why"]) == (False, "the branch has commits after the merge")
    assert (Path(place.path) / "late.txt").exists()


async def test_a_lock_that_another_run_holds_is_waited_for_and_then_told(tmp_path: Path) -> None:
    async with locked(tmp_path):
        with pytest.raises(GitProblemError, match="another run has held the lock") as problem:
            async with locked(tmp_path, seconds=0.02):
                raise AssertionError("two at once")
        assert problem.value.category is Category.TRANSIENT


HOSTILE = [
    "", "-f", "--upload-pack=touch", "a..b", "a b", "a\tb", "a\nb", "a~1", "a^", "a:b", "a?", "a*", "a[b", "a\\b",
    "a@{b", "@", "/a", "a/", "a//b", ".a", "a/.b", "a.", "a.lock", "a.lock/b", "a\0b", "HEAD", "{x}", "x" * 201,
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_no_branch(name: str) -> None:
    assert not is_branch(name)


@pytest.mark.parametrize("name", ["main", "feature/x-1", "release/2.0", "a_b", "ü"])
def test_what_git_takes_is_taken(tmp_path: Path, name: str) -> None:
    assert is_branch(name)
    git(tmp_path, "check-ref-format", f"refs/heads/{name}")


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({"path": "shop"}, "no absolute path"),
        ({"path": "/srv/../etc"}, "no absolute path"),
        ({"path": "/srv/${{ input.x }}"}, "taken as it is written"),
        ({"path": "/srv/shop", "worktrees": "/srv/shop/trees"}, "files of the repository"),
        ({"path": "/srv/shop", "base": "--all"}, "no name of a branch"),
        ({"path": "/srv/shop", "branch": "work"}, "the same for all"),
        ({"path": "/srv/shop", "branch": "work {run_id}"}, "gives no name"),
        ({"path": "/srv/shop", "branch": "{run_id}-{other}"}, "gives no name"),
        ({"base": "main"}, "path"),
    ],
)
def test_a_hostile_repository_is_refused_before_any_run(block: dict[str, Any], said: str) -> None:
    report = examine(document(task("build"), repository=block))
    assert report.definition is None
    assert any(said in problem.message or said in str(problem) for problem in report.problems), report.problems


@pytest.mark.parametrize("directory", ["..", "a/../../b", ".git/hooks", "${{ input.x }}"])
def test_a_task_does_not_leave_the_worktree(directory: str) -> None:
    report = examine(document(task("build", working_directory=directory), repository={"path": "/srv/shop"}))
    assert any("stays within the worktree" in problem.message for problem in report.problems)


def test_a_task_cannot_have_the_id_of_a_step_of_the_repository() -> None:
    report = examine(document(task("merge"), repository={"path": "/srv/shop"}))
    assert any("`merge` is a step that the repository brings" in problem.message for problem in report.problems)


def test_a_worker_that_may_not_run_git_leaves_the_actions_to_others() -> None:
    assert may_use_git(CommandPolicy())
    assert may_use_git(CommandPolicy(programs=("git",)))
    assert not may_use_git(CommandPolicy(enabled=False))
    assert not may_use_git(CommandPolicy(programs=("true",)))


def test_no_application_registers_an_action_of_worktrees() -> None:
    with pytest.raises(InvalidInput, match="every worker has the actions"):
        Registry().register(HandlerSpec(name="stepkeep.worktree.create", function=print))


# -- another user ------------------------------------------------------------------------------------------------------
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs git as another user")
NOBODY = identity_of(65534)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter, owned by root."""
    with tempfile.TemporaryDirectory(prefix="stepkeep-worktrees-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def given_to_nobody(path: Path) -> Path:
    for one in (path, *path.rglob("*")):
        os.chown(one, NOBODY.uid, NOBODY.gid)
    return path


@needs_root
async def test_a_whole_workstream_works_as_the_user_of_commands_and_leaves_nothing_of_root(open_folder: Path) -> None:
    own = open_folder / "own"
    make_repository(own / "repository")
    place = place_in(given_to_nobody(own) / "repository")
    await ACTIONS["create"](place, NOBODY)
    work = Path(place.path) / "new.txt"
    assert work.parent.stat().st_uid == work.parent.parent.stat().st_uid == NOBODY.uid
    work.write_text("new")
    os.chown(work, NOBODY.uid, NOBODY.gid)
    for name in ("plan", "merge", "cleanup"):
        await ACTIONS[name](place, NOBODY)
    assert not work.parent.exists()
    owned_by_root = [one for one in own.rglob("*") if one.stat().st_uid == 0]
    assert owned_by_root == [own / "repository" / "stepkeep.lock"]


@needs_root
async def test_the_user_of_commands_makes_and_removes_nothing_with_the_rights_of_the_worker(open_folder: Path) -> None:
    own = open_folder / "own"
    make_repository(own / "repository")
    given_to_nobody(own)
    place = place_in(own / "repository", worktrees=str(open_folder / "made" / "by" / "root"))
    with pytest.raises(GitProblemError, match="cannot be made") as problem:
        await ACTIONS["create"](place, NOBODY)
    assert problem.value.category is Category.VALIDATION
    assert not (open_folder / "made").exists()
    kept = Path(place_in(own / "repository", worktrees=str(open_folder)).path)
    kept.mkdir()
    (kept / "file").write_text("of root")
    with pytest.raises(GitProblemError, match="cannot be removed"):
        await ACTIONS["create"](place_in(own / "repository", worktrees=str(open_folder)), NOBODY)
    assert (kept / "file").read_text() == "of root"


@needs_root
async def test_a_repository_of_another_user_is_refused(open_folder: Path) -> None:
    make_repository(open_folder / "repository")
    with pytest.raises(GitProblemError) as problem:
        await ACTIONS["create"](place_in(open_folder / "repository"), NOBODY)
    assert problem.value.final
    assert not (open_folder / "repository" / "stepkeep.lock").exists()


def test_a_link_in_the_place_of_a_worktree_is_removed_and_not_followed(tmp_path: Path) -> None:
    place, kept = place_in(make_repository(tmp_path / "repository")), tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("kept")
    Path(place.path).parent.mkdir()
    Path(place.path).symlink_to(kept)
    act("create", place)
    assert (kept / "file").read_text() == "kept"
    assert not Path(place.path).is_symlink()
