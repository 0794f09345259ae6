"""The four actions of a workstream with a repository: create its worktree, plan its merge, merge it, clean up.

Each recognises what an earlier, interrupted attempt has done, so that it may run again at any moment. What belongs to a
run is marked by references under `refs/stepkeep/RUN/`. The executor of worktrees calls it, under no transaction.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import msgspec

from stepkeep.kernel.machine.states import Category
from stepkeep.worker.identity import Identity
from stepkeep.worker.worktrees.git import Git, GitProblemError, locked

MOST_SHOWN = 200
"""How many commits and files a merge plan names."""

MERGE_TRIES = 5
"""How often a merge is computed again because the base branch has moved."""

NAMED = 5
"""How many files an error names."""


class CreatedWorktree(TypedDict):
    """A worktree on its branch."""

    path: str
    branch: str
    base: str
    base_commit: str | None


class ListedCommit(TypedDict):
    commit: str
    subject: str


class ChangedFile(TypedDict):
    status: str
    file: str


class MergePlan(TypedDict):
    """What a merge would bring. `cut`: lists have more than is shown; `committed`: changes were committed for it."""

    path: str
    branch: str
    base: str
    head_commit: str
    base_commit: str
    commits: list[ListedCommit]
    files: list[ChangedFile]
    conflicts: list[str]
    cut: bool
    committed: NotRequired[bool]


class Merged(TypedDict):
    """A branch that is in its base, and the commit that brought it there."""

    merged: bool
    branch: str
    base: str
    commit: str


class Removed(TypedDict):
    """Whether a worktree is gone with its branch, and why not."""

    removed: bool
    branch: str
    why: NotRequired[str]


class Worktree(msgspec.Struct, frozen=True, kw_only=True):
    """Where the work of one run is: its repository, its branch and its worktree."""

    repository: str
    base: str
    branch: str
    path: str
    workstream: str
    run_id: str

    @property
    def head_ref(self) -> str:
        return f"refs/heads/{self.branch}"

    @property
    def base_ref(self) -> str:
        return f"refs/heads/{self.base}"

    def mark(self, name: str) -> str:
        return f"refs/stepkeep/{self.run_id}/{name}"


def place_of(given: Mapping[str, Any], run_id: str) -> Worktree:
    """The place of a run, from the inputs that `build` wrote."""
    names = {"run_id": run_id, "workstream_id": given["workstream"]}
    branch = given["branch"]
    for name, value in names.items():
        branch = branch.replace(f"{{{name}}}", value)
    root = given["worktrees"] or f"{given['repository'].rstrip('/')}.worktrees"
    return Worktree(
        repository=given["repository"],
        base=given["base"],
        branch=branch,
        path=f"{root.rstrip('/')}/{given['workstream']}-{run_id}",
        workstream=given["workstream"],
        run_id=run_id,
    )


# -- create ----------------------------------------------------------------------------------------------------------
async def create(place: Worktree, user: Identity | None) -> CreatedWorktree:
    """A branch from the base and a worktree on it."""
    async with _repository(place, user) as git:
        base = await _required(git, place.base_ref, f"the base branch {place.base}")
        await _create_branch(git, place, base)
        if await git.commit_of(place.mark("ready")) is None:
            await _remove_unfinished(git, place)
            await _make_room(git, place)
            await git("worktree", "add", "--force", "--force", "--quiet", "--", place.path, place.branch)
            await git("update-ref", place.mark("ready"), base)
        elif not _is_folder(place.path):
            await git("worktree", "prune")
            await git("worktree", "add", "--quiet", "--", place.path, place.branch)
        began = await git.commit_of(place.mark("base"))
        return {"path": place.path, "branch": place.branch, "base": place.base, "base_commit": began}


async def _create_branch(git: Git, place: Worktree, base: str) -> None:
    """The branch and the mark that it belongs to this run, in one transaction of git."""
    if await git.commit_of(place.mark("base")) is not None:
        if await git.commit_of(place.head_ref) is None:
            await git("update-ref", place.head_ref, base, "")
        return
    if await git.commit_of(place.head_ref) is not None:
        said = f"the branch {place.branch} exists and belongs to no run. Choose another `branch`, or rename that one."
        raise GitProblemError(said, Category.VALIDATION, final=True)
    await git("check-ref-format", place.head_ref)
    await git("update-ref", "--stdin", given=f"create {place.mark('base')} {base}\ncreate {place.head_ref} {base}\n")


async def _remove_unfinished(git: Git, place: Worktree) -> None:
    """Remove what an interrupted creation left: no task has worked there yet."""
    if _exists(place.path):
        await git("worktree", "remove", "--force", "--force", "--", place.path, accept=(0, 128))
        await _remove_folder(git, place.path)
    await git("worktree", "prune", "--expire=now")


async def _make_room(git: Git, place: Worktree) -> None:
    folder = Path(place.path).parent
    if (made := await git.run("mkdir", "-p", "--", str(folder))).status:
        said = f"the folder of worktrees {folder} cannot be made: {made.errors}"
        raise GitProblemError(said, Category.VALIDATION, final=True)


# -- plan ------------------------------------------------------------------------------------------------------------
async def plan(place: Worktree, user: Identity | None) -> MergePlan:
    """Commit what the tasks left uncommitted, and say what a merge would bring."""
    async with _repository(place, user) as git:
        tree = await _own_tree(git, place)
        committed = await _commit_rest(tree, place)
        base = await _required(git, place.base_ref, f"the base branch {place.base}")
        head = await _required(git, place.head_ref, f"the branch {place.branch}")
        told = await _plan(git, place, base, head)
        told["committed"] = committed
        return told


async def _commit_rest(tree: Git, place: Worktree) -> bool:
    await tree("add", "--all")
    if (await tree("diff", "--cached", "--quiet", accept=(0, 1))).status == 0:
        return False
    message = f"{place.workstream}: work of run {place.run_id}"
    await tree(*await tree.who_commits(), "commit", "--quiet", "--no-verify", "-m", message)
    return True


async def _plan(git: Git, place: Worktree, base: str, head: str) -> MergePlan:
    commits = (await git("log", "-z", f"-n{MOST_SHOWN + 1}", "--format=%H %s", f"{base}..{head}")).output
    listed = [line for line in commits.decode("utf-8", "replace").split("\0") if line]
    files = (await git("diff", "-z", "--no-renames", "--name-status", f"{base}...{head}")).parts
    changed: list[ChangedFile] = [{"status": files[at], "file": files[at + 1]} for at in range(0, len(files) - 1, 2)]
    _, conflicts = await _merged_tree(git, base, head)
    return {
        "path": place.path,
        "branch": place.branch,
        "base": place.base,
        "head_commit": head,
        "base_commit": base,
        "commits": [{"commit": line[:40], "subject": line[41:]} for line in listed[:MOST_SHOWN]],
        "files": changed[:MOST_SHOWN],
        "conflicts": conflicts[:MOST_SHOWN],
        "cut": len(listed) > MOST_SHOWN or len(changed) > MOST_SHOWN or len(conflicts) > MOST_SHOWN,
    }


async def _merged_tree(git: Git, base: str, head: str) -> tuple[str, list[str]]:
    """The tree of a merge, and the files in conflict. No worktree and no reference changes."""
    merged = await git("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", base, head, accept=(0, 1))
    tree, *conflicts = merged.parts
    return tree, list(dict.fromkeys(name for name in conflicts if name)) if merged.status == 1 else []


# -- merge -----------------------------------------------------------------------------------------------------------
async def merge(place: Worktree, user: Identity | None) -> Merged:
    """Merge the branch into its base. A conflict is a failure that people can settle in the worktree."""
    async with _repository(place, user) as git:
        for _ in range(MERGE_TRIES):
            if (done := await git.commit_of(place.mark("merged"))) is not None:
                return _merge_told(place, done)
            head = await _required(git, place.head_ref, f"the branch {place.branch}")
            base = await _required(git, place.base_ref, f"the base branch {place.base}")
            if await git.is_ancestor(head, base):
                # Nothing was committed, or an earlier attempt was killed after the base had moved.
                await git("update-ref", place.mark("merged"), base)
                return _merge_told(place, base)
            await _require_committed(git, place)
            await _merge_once(git, place, base, head)
        said = f"{place.base} moved {MERGE_TRIES} times while {place.branch} was merged into it"
        raise GitProblemError(said, Category.TRANSIENT)


def _merge_told(place: Worktree, commit: str) -> Merged:
    return {"merged": True, "branch": place.branch, "base": place.base, "commit": commit}


async def _require_committed(git: Git, place: Worktree) -> None:
    tree = await _own_tree(git, place)
    if left := (await tree("status", "--porcelain", "-z")).parts:
        files = _few([one[3:] for one in left])
        said = f"the worktree {place.path} has changes that are not committed: {files}. Commit them, then retry."
        raise GitProblemError(said, Category.CONFLICT)


async def _merge_once(git: Git, place: Worktree, base: str, head: str) -> None:
    """Merge unless the base has moved meanwhile. The loop of `merge` looks again and finds the mark."""
    tree, conflicts = await _merged_tree(git, base, head)
    if conflicts:
        raise GitProblemError(
            f"merging {place.branch} into {place.base} conflicts in {_few(conflicts)}. Settle it in {place.path}: "
            f"run `git merge {place.base}`, resolve the files and commit. Then retry this step.",
            Category.CONFLICT,
        )
    message = f"Merge workstream {place.workstream}, run {place.run_id}"
    named = await git.who_commits()
    commit = (await git(*named, "commit-tree", tree, "-p", base, "-p", head, "-m", message)).text
    if (checkout := await _checkout_of(git, place.base_ref)) is not None:
        await _move_checkout(git.at(checkout), place, base, commit)
        return
    moves = f"update {place.base_ref} {commit} {base}\ncreate {place.mark('merged')} {commit}\n"
    moved = await git("update-ref", "--stdin", given=moves, accept=(0, 128))
    if moved.status and await git.commit_of(place.base_ref) == base:
        raise GitProblemError(f"{place.base} cannot be moved: {moved.errors}")


async def _checkout_of(git: Git, ref: str) -> str | None:
    """The worktree in which a branch is checked out."""
    path = None
    for line in (await git("worktree", "list", "--porcelain", "-z")).parts:
        if line.startswith("worktree "):
            path = line.removeprefix("worktree ")
        elif line == f"branch {ref}":
            return path
    return None


async def _move_checkout(checkout: Git, place: Worktree, base: str, commit: str) -> None:
    """Move a base branch that is checked out, with its files. Never over changes that are not committed."""
    if await checkout.commit_of("HEAD") != base:
        return
    if left := (await checkout("status", "--porcelain", "-z", "--untracked-files=no")).parts:
        files = _few([one[3:] for one in left])
        raise GitProblemError(
            f"{place.base} is checked out in {checkout.directory} with changes that are not committed: {files}. "
            "Commit or stash them, then retry this step.",
            Category.CONFLICT,
        )
    moved = await checkout("merge", "--quiet", "--ff-only", commit, accept=(0, 1, 128))
    if moved.status and await checkout.commit_of("HEAD") == base:
        said = f"{place.base}, which is checked out in {checkout.directory}, cannot be moved: {moved.errors}"
        raise GitProblemError(said, Category.CONFLICT)


# -- cleanup ---------------------------------------------------------------------------------------------------------
async def cleanup(place: Worktree, user: Identity | None) -> Removed:
    """Remove the worktree of a merged run, its branch and its marks. A branch with later commits stays."""
    async with _repository(place, user) as git:
        head, base = await git.commit_of(place.head_ref), await git.commit_of(place.base_ref)
        later = head is not None and (base is None or not await git.is_ancestor(head, base))
        if _exists(place.path):
            if later:
                return {"removed": False, "branch": place.branch, "why": "the branch has commits after the merge"}
            removed = await git("worktree", "remove", "--force", "--", place.path, accept=(0, 128))
            if removed.status and _exists(place.path):
                await _remove_folder(git, place.path)
        await git("worktree", "prune", "--expire=now")
        if head is not None and not later:
            await git("update-ref", "-d", place.head_ref, head)
        for name in ("ready", "base", "merged"):
            await git("update-ref", "-d", place.mark(name))
        return {"removed": True, "branch": place.branch}


async def _remove_folder(git: Git, path: str) -> None:
    """Remove a folder that git did not remove. A link in its place is removed and not followed."""
    if (removed := await git.run("rm", "-rf", "--", path)).status:
        raise GitProblemError(f"the worktree {path} cannot be removed: {removed.errors}")


# -- the repository --------------------------------------------------------------------------------------------------
@asynccontextmanager
async def _repository(place: Worktree, user: Identity | None) -> AsyncIterator[Git]:
    """git in the repository, under its lock. Refuses a folder that is no repository itself."""
    plain = Git(place.repository, user=user)
    if not _is_folder(place.repository):
        said = f"the repository {place.repository} is no folder on this worker"
        raise GitProblemError(said, Category.VALIDATION, final=True)
    found = await plain("rev-parse", "--path-format=absolute", "--git-common-dir", accept=(0, 128))
    if found.status:
        said = f"{place.repository} cannot be used as a git repository: {found.errors}"
        raise GitProblemError(said, Category.VALIDATION, final=True)
    if user is not None and os.stat(found.text).st_uid != user.uid:
        said = f"the repository {place.repository} does not belong to {user.name}, as whom commands run"
        raise GitProblemError(said, Category.VALIDATION, final=True)
    async with locked(Path(found.text)) as handle:
        yield Git(place.repository, user=user, lock=handle)


async def _own_tree(git: Git, place: Worktree) -> Git:
    """git in the run's worktree, if that is still what was created: of this repository and on the run's branch."""
    tree = git.at(place.path)
    if not _is_folder(place.path):
        raise GitProblemError(f"the worktree {place.path} is gone", Category.VALIDATION, final=True)
    asked = ("rev-parse", "--path-format=absolute", "--git-common-dir")
    mine, its = await git(*asked), await tree(*asked, accept=(0, 128))
    on = await tree("symbolic-ref", "--quiet", "HEAD", accept=(0, 1, 128))
    if its.status or mine.text != its.text or on.text != place.head_ref:
        said = f"{place.path} is no longer a worktree of {place.repository} on the branch {place.branch}"
        raise GitProblemError(said, Category.CONFLICT)
    return tree


async def _required(git: Git, ref: str, what: str) -> str:
    found = await git.commit_of(ref)
    if found is None:
        said = f"{what} does not exist in {git.directory}"
        raise GitProblemError(said, Category.VALIDATION, final=True)
    return found


def _exists(path: str) -> bool:
    return os.path.lexists(path)


def _is_folder(path: str) -> bool:
    """Whether this is a folder itself. A link to one could lead anywhere."""
    return os.path.isdir(path) and not os.path.islink(path)


def _few(files: list[str]) -> str:
    more = len(files) - NAMED
    return ", ".join(files[:NAMED]) + (f" and {more} more" if more > 0 else "")


Action = Callable[[Worktree, Identity | None], Awaitable[CreatedWorktree | MergePlan | Merged | Removed]]

ACTIONS: Mapping[str, Action] = {"create": create, "plan": plan, "merge": merge, "cleanup": cleanup}
