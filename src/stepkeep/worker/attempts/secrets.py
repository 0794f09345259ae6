"""Where a worker finds the values of secrets: its program, its environment, a directory, a file, a command.

Values are read when a step that names them is executed, and are kept in memory for half a minute. They are never
stored, shown or logged here, and no error quotes one. A source that blocks is read in a thread of its own, within a
time limit. `Inputs` calls it for each attempt; the worker's loop asks it which queues can be served.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from stepkeep.definition.expressions.scope import is_secret_name
from stepkeep.edges.own_process import SECRET, is_private, variables
from stepkeep.edges.safe_text import plain_text, type_name
from stepkeep.edges.secret_values import KNOWN
from stepkeep.kernel.errors import InvalidInput, StepkeepError

MAX_VALUE_BYTES = 64 * 1024
MAX_FILE_BYTES = 1024 * 1024
READ_SECONDS = 10.0
KEPT_SECONDS = 30.0
"""How long a value is kept, so that a changed one is used soon."""
MISSING_SECONDS = 30.0
"""How long a worker leaves steps to others after it was asked in vain for a secret they read."""

Given = Mapping[str, str] | Callable[[str], str | None]

_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*")


class MissingSecret(StepkeepError):
    """This worker has no such secret, or cannot read it. The text names it, and quotes nothing."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"this worker has no secret {name}: {why}")
        self.name = name


class Unreadable(Exception):
    """A source cannot be read; the text says why and quotes nothing of it."""


class Secrets(msgspec.Struct, frozen=True, kw_only=True):
    """Where the secrets of a worker are. The first place that has one counts, in the order of these fields.

    `values` is a mapping, or a function that gets a name and returns the value or None. `environment`: variables
    `STEPKEEP_SECRET_NAME`. `directory` holds one file for each secret. `file` holds lines `NAME=value`, or one JSON
    object. `command` is a program with arguments, called with the name as its last argument; it prints the value.
    """

    values: Given | None = None
    environment: bool = True
    directory: str | None = None
    file: str | None = None
    command: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.values is not None and not callable(self.values):
            _check_values(self.values)
        argv: object = self.command
        if argv is not None and (not isinstance(argv, tuple) or not argv):
            raise InvalidInput("the command for secrets is a program with its arguments, as in ('pass', 'show').")

    def __repr__(self) -> str:
        return f"Secrets(environment={self.environment}, directory={self.directory!r}, file={self.file!r})"


def as_secrets(given: object) -> Secrets:
    """What `secrets=` was given, as a Secrets."""
    if isinstance(given, Secrets):
        return given
    if callable(given) or isinstance(given, Mapping):
        return Secrets(values=given)
    raise InvalidInput(
        f"`secrets` takes a mapping, a function or a stepkeep.Secrets, and not a value of type {type_name(given)}."
    )


class Source(Protocol):
    """One place. `names` is None where any name may be there."""

    def names(self) -> Iterable[str] | None: ...

    def read(self, name: str) -> str | None:
        """The value, None if there is none here; raises Unreadable."""
        ...


class SecretReader:
    """The secrets of one worker."""

    def __init__(self, secrets: Secrets, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._sources, self._monotonic = tuple(_sources(secrets)), monotonic
        self._kept: dict[str, tuple[float, str]] = {}
        self._missing: dict[str, float] = {}

    def has(self, name: str) -> bool:
        """Whether a step that reads this secret may be claimed here."""
        if self._monotonic() < self._missing.get(name, float("-inf")):
            return False
        return any((names := _names(source)) is None or name in names for source in self._sources)

    def offered(self) -> tuple[str, ...] | None:
        """The names of all secrets here; None where there may be any."""
        names = [_names(source) for source in self._sources]
        if any(some is None for some in names):
            return None
        return tuple(sorted({name for some in names for name in some or ()} - set(self.lacking())))

    def lacking(self) -> tuple[str, ...]:
        """The names that were asked for in vain a moment ago."""
        return tuple(sorted(name for name, until in self._missing.items() if self._monotonic() < until))

    async def read(self, names: Iterable[str]) -> dict[str, str]:
        """The values of these secrets; raises MissingSecret."""
        found = {name: await self._read(name) for name in sorted(names)}
        KNOWN.remember(found)
        return found

    async def _read(self, name: str) -> str:
        now = self._monotonic()
        until, value = self._kept.get(name, (float("-inf"), ""))
        if now < until:
            return value
        try:
            value = await _in_thread(lambda: _first(self._sources, name))
        except Unreadable as problem:
            self._kept.pop(name, None)
            self._missing[name] = self._monotonic() + MISSING_SECONDS
            raise MissingSecret(name, str(problem)) from None
        self._missing.pop(name, None)
        self._kept[name] = (now + KEPT_SECONDS, value)
        return value


def _first(sources: Sequence[Source], name: str) -> str:
    troubles = []
    for source in sources:
        try:
            value = source.read(name)
        except Unreadable as problem:
            troubles.append(str(problem))
            continue
        if value is not None:
            return _checked(value)
    raise Unreadable("; ".join(troubles) or f"set {SECRET}{name}, or see --secrets-dir of the worker")


def _checked(value: str) -> str:
    if not value:
        raise Unreadable("its value is empty")
    if "\0" in value or len(value.encode("utf-8", "replace")) > MAX_VALUE_BYTES:
        raise Unreadable(f"its value has a NUL character or more than {MAX_VALUE_BYTES} bytes")
    return value


def _names(source: Source) -> frozenset[str] | None:
    try:
        names = source.names()
    except Unreadable:
        return frozenset()
    return None if names is None else frozenset(names)


def _sources(secrets: Secrets) -> Iterable[Source]:
    if callable(secrets.values):
        yield _FunctionSource(secrets.values)
    elif secrets.values is not None:
        yield _Values(secrets.values)
    if secrets.environment:
        yield _Environment()
    if secrets.directory is not None:
        yield _Directory(Path(secrets.directory))
    if secrets.file is not None:
        yield _File(Path(secrets.file))
    if secrets.command is not None:
        yield _Command(secrets.command)


class _Values:
    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def names(self) -> Iterable[str]:
        return self._values

    def read(self, name: str) -> str | None:
        return plain_text(self._values.get(name))


class _FunctionSource:
    """A function of the program."""

    def __init__(self, ask: Callable[[str], str | None]) -> None:
        self._ask = ask

    def names(self) -> None:
        return None

    def read(self, name: str) -> str | None:
        try:
            found = self._ask(name)
        except Exception as problem:  # noqa: BLE001 - its text may quote the secret
            raise Unreadable(f"the function for secrets raised {type_name(problem)}") from None
        if found is not None and plain_text(found) is None:
            raise Unreadable(f"the function for secrets returned a value of type {type_name(found)}")
        return plain_text(found)


class _Environment:
    def names(self) -> Iterable[str]:
        return [name.removeprefix(SECRET) for name in variables() if name.startswith(SECRET)]

    def read(self, name: str) -> str | None:
        return variables().get(SECRET + name)


class _Directory:
    def __init__(self, path: Path) -> None:
        self._path = path

    def names(self) -> Iterable[str]:
        try:
            return [name for name in os.listdir(self._path) if is_secret_name(name)]
        except OSError as problem:
            raise Unreadable(f"the directory of secrets cannot be read: {os.strerror(problem.errno or 0)}") from None

    def read(self, name: str) -> str | None:
        text = _file_text(self._path / name, "its file", MAX_VALUE_BYTES)
        return None if text is None else text.removesuffix("\n").removesuffix("\r")


class _File:
    def __init__(self, path: Path) -> None:
        self._path = path

    def names(self) -> Iterable[str]:
        return self._read()

    def read(self, name: str) -> str | None:
        return self._read().get(name)

    def _read(self) -> dict[str, str]:
        text = _file_text(self._path, "the file of secrets", MAX_FILE_BYTES)
        if text is None:
            raise Unreadable("the file of secrets does not exist")
        if text.lstrip().startswith("{"):
            try:
                return msgspec.json.decode(text, type=dict[str, str])
            except msgspec.MsgspecError:
                raise Unreadable("the file of secrets is no JSON object of texts") from None
        found = (_LINE.fullmatch(line) for line in text.splitlines() if not line.lstrip().startswith("#"))
        return {line[1]: _unquoted(line[2]) for line in found if line is not None}


class _Command:
    def __init__(self, argv: tuple[str, ...]) -> None:
        self._argv = argv

    def names(self) -> None:
        return None

    def read(self, name: str) -> str | None:
        try:
            with subprocess.Popen(
                [*self._argv, name],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={one: value for one, value in os.environ.items() if not is_private(one)},
            ) as process:
                watch = threading.Timer(READ_SECONDS, process.kill)
                watch.start()
                try:
                    assert process.stdout is not None
                    said = process.stdout.read(MAX_VALUE_BYTES + 2)
                    if len(said) > MAX_VALUE_BYTES + 1:
                        process.kill()
                    status = process.wait()
                finally:
                    watch.cancel()
        except (OSError, ValueError):
            raise Unreadable("the command for secrets cannot be started") from None
        if status:
            raise Unreadable(f"the command for secrets ended with status {status}")
        return said.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")


def _file_text(path: Path, what: str, limit: int) -> str | None:
    try:
        with path.open("rb") as opened:
            said = opened.read(limit + 2)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise Unreadable(f"{what} cannot be read: {os.strerror(problem.errno or 0)}") from None
    if len(said) > limit + 1:
        raise Unreadable(f"{what} has more than {limit} bytes")
    try:
        return said.decode()
    except UnicodeDecodeError:
        raise Unreadable(f"{what} is not UTF-8") from None


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'" else text


def _check_values(values: Mapping[str, str]) -> None:
    for name, value in values.items():
        if not is_secret_name(plain_text(name)):
            raise InvalidInput("the name of a secret has letters, digits and _, and no digit first.")
        if plain_text(value) is None:
            raise InvalidInput(f"the secret {name} is a text, not a value of type {type_name(value)}.")


async def _in_thread(work: Callable[[], str]) -> str:
    """In a daemon thread: a source that hangs delays neither the worker nor its end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[str] = loop.create_future()

    def settle(value: str | None, problem: Exception | None) -> None:
        if not done.done():
            done.set_result(value or "") if problem is None else done.set_exception(problem)

    def run() -> None:
        found: tuple[Any, Any]
        try:
            found = (work(), None)
        except Unreadable as problem:
            found = (None, problem)
        except BaseException as problem:  # noqa: BLE001 - its text may quote the secret
            found = (None, Unreadable(f"reading it raised {type_name(problem)}"))
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, *found)

    threading.Thread(target=run, name="stepkeep-secrets", daemon=True).start()
    try:
        return await asyncio.wait_for(done, READ_SECONDS * 1.5)
    except TimeoutError:
        raise Unreadable(f"it was not read within {READ_SECONDS * 1.5:g} s") from None
