"""Real git repositories for tests, and a `git` that kills the worker that called it at a chosen call."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

GIT = shutil.which("git") or "git"
QUIET = ("-c", "user.name=tester", "-c", "user.email=tester@example.org", "-c", "commit.gpgSign=false")


def git(directory: Path | str, *arguments: str, check: bool = True) -> str:
    done = subprocess.run(
        [GIT, *QUIET, "-C", str(directory), *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert not check or done.returncode == 0, (arguments, done.stderr)
    return done.stdout.strip()


def make_repository(path: Path, files: dict[str, str] | None = None, *, bare: bool = True) -> Path:
    """A repository with one commit on `main`; a bare one has no files beside its history."""
    work = path.with_name(f"{path.name}.first") if bare else path
    work.mkdir(parents=True)
    git(work, "init", "--quiet", "--initial-branch=main")
    commit(work, files or {"README": "first\n"}, "first")
    if bare:
        git(path.parent, "clone", "--quiet", "--bare", str(work), str(path))
        shutil.rmtree(work)
    return path


def commit(work: Path, files: dict[str, str], message: str) -> None:
    for name, text in files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text)
    git(work, "add", "--all")
    git(work, "commit", "--quiet", "-m", message)


def change_main(repository: Path, files: dict[str, str], message: str = "someone else") -> None:
    """A commit on `main` that another person made elsewhere."""
    clone = repository.with_name(f"{repository.name}.other")
    git(repository.parent, "clone", "--quiet", str(repository), str(clone))
    commit(clone, files, message)
    git(clone, "push", "--quiet", "origin", "main")
    shutil.rmtree(clone)


def files_of(repository: Path, ref: str = "main") -> dict[str, str]:
    names = git(repository, "ls-tree", "-r", "--name-only", ref).splitlines()
    return {name: git(repository, "show", f"{ref}:{name}") for name in names}


def refs_of(repository: Path) -> list[str]:
    return git(repository, "for-each-ref", "--format=%(refname)").splitlines()


KILLER = """#!/bin/sh
# Counts the calls of git, and kills the caller at one of them: before git runs, or after it has run.
echo "$*" >> "{log}"
number=$(wc -l < "{log}")
if [ "$number" -eq "{at}" ]; then
  if [ "{when}" = after ]; then "{git}" "$@"; fi
  kill -9 "$PPID"
  exit 137
fi
exec "{git}" "$@"
"""


def killer(folder: Path, at: int, when: str) -> dict[str, str]:
    """The environment of a process whose call number `at` of git kills it."""
    folder.mkdir()
    script = folder / "git"
    script.write_text(KILLER.format(log=folder / "calls", at=at, when=when, git=GIT))
    script.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def calls(folder: Path) -> int:
    log = folder / "calls"
    return len(log.read_text().splitlines()) if log.exists() else 0
