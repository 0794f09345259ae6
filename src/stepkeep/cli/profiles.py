"""The file of profiles: services and databases by name, with the key for each, and the one that is in use.

It reads and writes the file, and opens nothing that a profile names. A file that others may change is refused, and one
with a secret that others may read. `settings` and `stepkeep profile` call it.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import msgspec

from stepkeep.edges.redaction import secrets_of_url
from stepkeep.edges.safe_text import inert_line
from stepkeep.kernel.errors import InvalidInput, NotFound

MAX_FILE_BYTES = 1024 * 1024
HEAD = "# Profiles of stepkeep. `stepkeep profile` writes this file, and keeps no comments.\n"
OTHERS_READ, OTHERS_WRITE = stat.S_IRGRP | stat.S_IROTH, stat.S_IWGRP | stat.S_IWOTH


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One service, or one database. `key` is the secret itself; `key_file` is where it is."""

    name: str = ""
    server: str | None = None
    db: str | None = None
    tenant: str = "default"
    key_file: str | None = None
    key: str | None = None

    @property
    def has_secret(self) -> bool:
        """Whether the file of profiles holds a secret of it: a key, or the password of a database."""
        return self.key is not None or any(secrets_of_url(self.db or ""))


class Profiles(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the file says."""

    use: str | None = None
    profiles: dict[str, Profile] = {}

    def named(self, name: str) -> Profile:
        """The profile of this name."""
        if name not in self.profiles:
            known = ", ".join(self.profiles) or "none"
            raise NotFound(f"there is no profile {inert_line(name, 80)} in {profiles_file()}; there are: {known}.")
        return msgspec.structs.replace(self.profiles[name], name=name)


def profiles_file() -> Path:
    """Where profiles are kept."""
    if given := os.environ.get("STEPKEEP_CONFIG"):
        return Path(given)
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(folder) if Path(folder).is_absolute() else Path.home() / ".config") / "stepkeep" / "profiles.toml"


def find_profile(name: str | None) -> Profile | None:
    """The profile of this name; without a name the one that is in use, if any."""
    found = read_profiles()
    chosen = name or found.use
    return None if chosen is None else found.named(chosen)


def read_profiles() -> Profiles:
    """All profiles; none if there is no file."""
    file = profiles_file()
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            content = opened.read(MAX_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return Profiles()
    except OSError as problem:
        raise InvalidInput(f"the file of profiles {file} cannot be read: {problem.strerror or problem}.") from None
    if len(content) > MAX_FILE_BYTES:
        raise InvalidInput(f"the file of profiles {file} is too large: {MAX_FILE_BYTES:,} bytes at most.")
    found = _decoded(file, content)
    if os.name == "posix":
        _refuse_open(file, mode, any(one.has_secret for one in found.profiles.values()))
    return found


def write_profiles(profiles: Profiles) -> None:
    """Replace the file. Only its owner may read it."""
    file = profiles_file()
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = file.resolve()  # a link stays one
    beside = file.with_name(f"{file.name}.new")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
        opened.write(_encoded(profiles))
    beside.replace(file)


def complete_profile(incomplete: str) -> list[str]:
    """The names of profiles that begin so, for a shell."""
    try:
        return [name for name in read_profiles().profiles if name.startswith(incomplete)]
    except (InvalidInput, OSError):
        return []


def _decoded(file: Path, content: bytes) -> Profiles:
    import tomllib

    try:
        found = msgspec.convert(tomllib.loads(content.decode()), Profiles)
    except (msgspec.ValidationError, tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise InvalidInput(f"the file of profiles {file} is wrong: {inert_line(str(problem), 200)}.") from None
    for name, one in found.profiles.items():
        if (one.server is None) is (one.db is None):
            raise InvalidInput(f"the profile {name} in {file} has a server or a db, one of the two.")
    return found


def _refuse_open(file: Path, mode: int, has_secret: bool) -> None:
    """Refuse a file that others may use: to take a key out of it, or to have a key sent elsewhere."""
    if mode & OTHERS_WRITE or (has_secret and mode & OTHERS_READ):
        what = "change" if mode & OTHERS_WRITE else "read"
        raise InvalidInput(f"others may {what} the file of profiles. Take that right away: chmod 600 {file}")


def _encoded(profiles: Profiles) -> str:
    """The file as TOML. Texts of JSON are texts of TOML, where no control character is in them."""
    lines = [HEAD] if profiles.use is None else [HEAD, f"use = {_text(profiles.use)}"]
    for name, one in sorted(profiles.profiles.items()):
        fields: dict[str, Any] = msgspec.to_builtins(one)
        fields.pop("name", None)
        lines += ["", f"[profiles.{_text(name)}]", *(f"{field} = {_text(value)}" for field, value in fields.items())]
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
