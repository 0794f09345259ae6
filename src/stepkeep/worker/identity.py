"""What a program inherits from its worker: a short environment, and the worker's user or another one.

It looks users up and starts nothing. The policy of commands, their executor and git of worktrees use it.
"""

from __future__ import annotations

import errno
import os
import pwd
from pathlib import Path
from typing import NamedTuple, TypedDict

from stepkeep.kernel.errors import InvalidInput

LARGEST_UID = 4_294_967_294
INHERITED = ("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "USER", "LOGNAME")


class ProcessUser(TypedDict, total=False):
    """The arguments of a process that say whose it is."""

    user: int
    group: int
    extra_groups: tuple[int, ...]


class Identity(NamedTuple):
    """A user of this machine."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    name: str
    home: str

    @property
    def options(self) -> ProcessUser:
        """How a process is started as this user. Its groups replace those of the worker.

        Raises PermissionError unless the worker is root: the capabilities of any other user would be inherited.
        """
        if os.geteuid() != 0:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        return {"user": self.uid, "group": self.gid, "extra_groups": self.groups}

    def may_read(self, path: Path) -> bool:
        """Whether the rights of a file let this user read it, whatever those of its folders say."""
        found = path.stat()
        shift = 6 if found.st_uid == self.uid else 3 if found.st_gid in (self.gid, *self.groups) else 0
        return bool(found.st_mode >> shift & 0o4)

    @property
    def variables(self) -> dict[str, str]:
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}


def identity_of(user: int | str) -> Identity:
    """The user with this name or number. A number without a user is its own only group."""
    number = int(user) if isinstance(user, int) or (user.isascii() and user.isdigit()) else None
    try:
        found = pwd.getpwnam(str(user)) if number is None else pwd.getpwuid(number)
    except (KeyError, OverflowError):
        if number is None or not 0 <= number <= LARGEST_UID:
            raise InvalidInput(f"commands cannot run as {str(user)[:100]!a}: this machine has no such user.") from None
        return Identity(number, number, (), str(number), "/")
    groups = tuple(os.getgrouplist(found.pw_name, found.pw_gid))
    return Identity(found.pw_uid, found.pw_gid, groups, found.pw_name, found.pw_dir or "/")


def passed_on(identity: Identity | None, further: tuple[str, ...] = ()) -> dict[str, str]:
    """The variables of the worker that a program gets. The worker's home and temporary folder are not for others."""
    listed = {*INHERITED, *further}
    found = {name: value for name, value in os.environ.items() if name in listed or name.startswith("LC_")}
    if identity is None:
        return found
    return {name: value for name, value in found.items() if name != "TMPDIR"} | identity.variables
