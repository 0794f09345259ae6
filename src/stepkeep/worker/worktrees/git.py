"""Runs git for the engine itself: argument lists without a shell, a short environment, and no hooks of the repository.

It knows no run and no workstream. A lock of the repository is passed on to each git process that writes. So it stays
taken until the last of them has ended, even if the worker is killed. `actions` calls it.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from stepkeep.kernel.machine.states import Category
from stepkeep.worker.identity import Identity, passed_on

MOST_OUTPUT = 4 * 1024 * 1024
"""Bytes of an answer that are read; a longer one is refused."""

MOST_ERRORS = 4 * 1024
LOCK_FILE = "stepkeep.lock"
LOCK_SECONDS = 120.0
"""How long an action waits for the others on its repository."""

# Nothing that the repository or a task configured may run beside git itself, and nothing may go on in the background.
OPTIONS = (
    "--no-pager",
    "-c", "core.hooksPath=/dev/null",
    "-c", "core.fsmonitor=false",
    "-c", "core.quotePath=false",
    "-c", "core.filesRefLockTimeout=5000",
    "-c", "core.packedRefsTimeout=5000",
    "-c", "gc.auto=0",
    "-c", "maintenance.auto=false",
    "-c", "protocol.allow=never",
    "-c", "submodule.recurse=false",
    "-c", "commit.gpgSign=false",
)  # fmt: skip


class GitProblemError(Exception):
    """Why an action cannot go on. `final`: no retry and no person at a gate can help."""

    def __init__(self, said: str, category: Category = Category.EXTERNAL, *, final: bool = False) -> None:
        super().__init__(said)
        self.category, self.final = category, final


class GitAnswer(NamedTuple):
    """What git printed, and its exit status."""

    status: int
    output: bytes
    errors: str

    @property
    def text(self) -> str:
        return self.output.decode("utf-8", "replace").strip()

    @property
    def parts(self) -> list[str]:
        """An answer to `-z`: its parts, without the NUL that ends the last one."""
        return self.output.decode("utf-8", "replace").split("\0")[:-1]


class Git:
    """git in one directory. `lock` is the descriptor of the lock that the caller holds."""

    def __init__(self, directory: str | Path, *, user: Identity | None = None, lock: int | None = None) -> None:
        self.directory, self._as, self._lock = Path(directory), user, lock

    def at(self, directory: str | Path) -> Git:
        """The same in another directory."""
        return Git(directory, user=self._as, lock=self._lock)

    async def __call__(self, *arguments: str, accept: Sequence[int] = (0,), given: str = "") -> GitAnswer:
        """Run git. Raises GitProblemError for an exit status that is not accepted."""
        answer = await self.run("git", *OPTIONS, "-C", str(self.directory), *arguments, given=given)
        if answer.status not in accept:
            raise GitProblemError(f"`git {arguments[0]}` ended with {answer.status}: {answer.errors or answer.text}")
        return answer

    async def run(self, *argv: str, given: str = "") -> GitAnswer:
        """Run a program as the user of this git: what it touches must not be chosen for the worker's own user."""
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._environment(),
                start_new_session=True,
                pass_fds=() if self._lock is None else (self._lock,),
                **({} if self._as is None else self._as.options),
            )  # fmt: skip
        except FileNotFoundError:
            raise GitProblemError(
                f"{argv[0]} is not installed on this worker", Category.VALIDATION, final=True
            ) from None
        except OSError as problem:
            raise GitProblemError(f"{argv[0]} cannot be started: {problem.strerror}", Category.TRANSIENT) from None
        return await _talk(process, given.encode())

    async def commit_of(self, name: str) -> str | None:
        """The commit of a full reference name, or None."""
        found = await self("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", accept=(0, 1))
        return found.text if found.status == 0 else None

    async def is_ancestor(self, one: str, other: str) -> bool:
        return (await self("merge-base", "--is-ancestor", one, other, accept=(0, 1))).status == 0

    async def who_commits(self) -> tuple[str, ...]:
        """Options that name a committer where the repository has none."""
        known = await self("config", "--get", "user.email", accept=(0, 1))
        return () if known.status == 0 else ("-c", "user.name=stepkeep", "-c", "user.email=stepkeep@localhost")

    def _environment(self) -> dict[str, str]:
        # Only this directory: a repository around it is another one.
        ceiling = str(Path(os.path.realpath(self.directory)).parent)
        return {
            **passed_on(self._as),
            "LC_ALL": "C",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_CEILING_DIRECTORIES": ceiling,
        }


async def _talk(process: asyncio.subprocess.Process, given: bytes) -> GitAnswer:
    assert process.stdin
    assert process.stdout
    assert process.stderr
    try:
        if given:
            with suppress(BrokenPipeError, ConnectionResetError):
                process.stdin.write(given)
                await process.stdin.drain()
        process.stdin.close()
        output, errors = await asyncio.gather(
            _read(process.stdout, MOST_OUTPUT + 1), _read(process.stderr, MOST_ERRORS)
        )
        if len(output) > MOST_OUTPUT:
            raise GitProblemError(f"git printed more than {MOST_OUTPUT} bytes", Category.VALIDATION, final=True)
        status = await process.wait()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(asyncio.CancelledError):
                await asyncio.shield(process.wait())
    return GitAnswer(status, output, errors.decode("utf-8", "replace").strip())


async def _read(stream: asyncio.StreamReader, limit: int) -> bytes:
    """The first bytes of a stream. The rest is read and dropped, up to a hard end for output that is refused anyway."""
    kept = bytearray()
    while chunk := await stream.read(65_536):
        kept += chunk[: limit - len(kept)]
        if len(kept) > MOST_OUTPUT:
            break
    return bytes(kept)


@asynccontextmanager
async def locked(folder: Path, seconds: float = LOCK_SECONDS) -> AsyncIterator[int]:
    """Hold the lock of a repository: one action at a time, in all workers of this machine."""
    try:
        handle = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as problem:
        said = f"the lock {folder / LOCK_FILE} cannot be opened: {problem.strerror}"
        raise GitProblemError(said, Category.VALIDATION, final=True) from None
    try:
        await _take(handle, seconds)
        yield handle
    finally:
        os.close(handle)


async def _take(handle: int, seconds: float) -> None:
    pause, waited = 0.01, 0.0
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waited >= seconds:
                said = f"another run has held the lock of the repository for {seconds:g} s"
                raise GitProblemError(said, Category.TRANSIENT) from None
            await asyncio.sleep(pause)
            waited, pause = waited + pause, min(pause * 2, 0.5)
        else:
            return
