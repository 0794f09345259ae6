"""The options that restrict steps on this machine, for `worker`, `run` and `rerun`; declared once and added to each.

It reads the options and decides nothing; the worker enforces them. It imports nothing heavy.
"""

from __future__ import annotations

import inspect
import os
import re
import shlex
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, NamedTuple, ParamSpec

from stepkeep.cli.arguments import by_name, opt, options_of
from stepkeep.cli.settings import Settings
from stepkeep.edges.own_process import protect_process
from stepkeep.edges.redaction import secrets_of_url
from stepkeep.edges.safe_text import inert_line
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.worker.attempts.secrets import Secrets
    from stepkeep.worker.executors.command import CommandPolicy
    from stepkeep.worker.executors.http import HttpPolicy

P = ParamSpec("P")

PANEL = "What steps may do"

_UNITS: dict[str, int] = {"": 1, "b": 1} | {
    f"{letter}{ending}": 1 << (10 * power) for power, letter in enumerate("kmgt", start=1) for ending in ("", "b", "ib")
}


def _option(*said: str, **more: Any) -> Any:
    return opt(*said, rich_help_panel=PANEL, **more)


Words = list[str] | None


class StepPolicies(NamedTuple):
    """The options as they were typed."""

    http_allow: Annotated[
        Words,
        _option(
            "--http-allow",
            "HOST|NETWORK[:PORT]",
            "Let HTTP steps reach this host too, although it is not public; may be repeated.",
        ),
    ] = None
    http_allow_internal: Annotated[bool, _option("--http-allow-internal", "Let HTTP steps reach every address.")] = (
        False
    )
    http_port: Annotated[
        list[int] | None,
        _option("--http-port", "PORT", "Let HTTP steps reach only these ports; may be repeated.", min=1, max=65535),
    ] = None
    no_http: Annotated[bool, _option("--no-http", "Run no HTTP steps here.")] = False
    command_allow: Annotated[
        Words, _option("--command-allow", "PROGRAM", "Let commands run only these; may be repeated.")
    ] = None
    command_env: Annotated[
        Words, _option("--command-env", "NAME", "Pass this variable on to commands, too; may be repeated.")
    ] = None
    command_memory: Annotated[str | None, _option("--command-memory", "SIZE", "Address space of a command: 2GiB.")] = (
        None
    )
    commands_as: Annotated[
        str | None, _option("--commands-as", "--command-user", "USER", "Run commands as this user (name or uid).")
    ] = None
    command_private: Annotated[
        bool, _option("--command-private", "Give each command an empty directory of its own.")
    ] = False
    allow_commands: Annotated[
        Words,
        _option(
            "--allow-commands",
            "TENANT",
            "Run commands of this tenant; needed on PostgreSQL and with --server; may be repeated.",
        ),
    ] = None
    no_commands: Annotated[bool, _option("--no-commands", "Run no commands here.")] = False
    process_memory_bytes: Annotated[
        str | None, _option("--process-memory", "SIZE", "Address space of a handler's process: 2GiB.")
    ] = None
    secrets_dir: Annotated[
        str | None,
        _option(
            "--secrets-dir",
            "DIRECTORY",
            "Read secrets from here: one file for each, with its name.",
            envvar="STEPKEEP_SECRETS_DIR",
        ),
    ] = None
    secrets_file: Annotated[
        str | None,
        _option(
            "--secrets-file",
            "FILE",
            "Read secrets from this file: lines NAME=value, or a JSON object.",
            envvar="STEPKEEP_SECRETS_FILE",
        ),
    ] = None
    secrets_command: Annotated[
        str | None,
        _option(
            "--secrets-command",
            "COMMAND",
            "Ask this program for secrets: called with a name, it prints the value.",
            envvar="STEPKEEP_SECRETS_COMMAND",
        ),
    ] = None

    def options(self) -> Mapping[str, Any]:
        """The same as engine values; raises InvalidInput."""
        return {
            "http": self._http(),
            "commands": self._commands(),
            "process_memory_bytes": parse_size("--process-memory", self.process_memory_bytes),
            "secrets": self._secrets(),
        }

    def _http(self) -> HttpPolicy:
        from stepkeep.worker.executors.http import HttpPolicy

        return HttpPolicy(
            enabled=not self.no_http,
            allow_internal=self.http_allow_internal,
            allow=tuple(self.http_allow or ()),
            ports=tuple(self.http_port) if self.http_port else None,
        )

    def _secrets(self) -> Secrets:
        from stepkeep.worker.attempts.secrets import Secrets

        for option, path, is_there in (
            ("--secrets-dir", self.secrets_dir, os.path.isdir),
            ("--secrets-file", self.secrets_file, os.path.isfile),
        ):
            if path and not is_there(path):
                raise InvalidInput(f"{option}: there is no {inert_line(path, 200)}.")
        command = _argv("--secrets-command", self.secrets_command) if self.secrets_command else None
        return Secrets(directory=self.secrets_dir or None, file=self.secrets_file or None, command=command)

    def _commands(self) -> CommandPolicy:
        from stepkeep.worker.executors.command import CommandPolicy

        if self.commands_as is not None and os.geteuid() != 0:
            raise InvalidInput("--commands-as: only root runs programs as another user. Start the worker as that user.")
        return CommandPolicy(
            enabled=not self.no_commands,
            tenants=tuple(self.allow_commands) if self.allow_commands else None,
            programs=tuple(self.command_allow) if self.command_allow else None,
            environment=tuple(self.command_env or ()),
            memory=parse_size("--command-memory", self.command_memory),
            user=self.commands_as,
            private_cwd=self.command_private,
        )


def with_policies(
    function: Callable[Concatenate[Settings, StepPolicies, P], int],
) -> Callable[Concatenate[Settings, P], int]:
    """Turn a function whose second parameter is Policies into one that has their options instead."""

    def command(settings: Settings, **given: Any) -> int:
        policies = StepPolicies(**{name: given.pop(name) for name in StepPolicies._fields})
        if settings.owns_process:
            protect_process(secrets_of_url(settings.db))
        return function(settings, policies, **given)  # type: ignore[call-arg]

    own = list(inspect.signature(function, eval_str=True).parameters.values())
    shown: Any = command
    shown.__signature__ = inspect.Signature([own[0], *map(by_name, own[2:]), *options_of(StepPolicies)])
    shown.__name__, shown.__doc__ = function.__name__, function.__doc__
    return shown  # type: ignore[no-any-return]


def _argv(option: str, text: str) -> tuple[str, ...]:
    """A program and its arguments, split as a shell would; no shell runs."""
    try:
        words = tuple(shlex.split(text))
    except ValueError:
        words = ()
    if not words:
        raise InvalidInput(f"{option} takes a program with its arguments, and quotes in pairs.")
    return words


def parse_size(option: str, text: str | None) -> int | None:
    """A written number of bytes.

    >>> parse_size("--process-memory", "2GiB"), parse_size("--process-memory", "512m")
    (2147483648, 536870912)
    """
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]{1,12})\s*([A-Za-z]*)", text.strip(), re.ASCII)
    if found is None or found[2].lower() not in _UNITS:
        raise InvalidInput(f"{option} takes a size, as in 512MiB or 2GiB, and not {text!r}.")
    return int(found[1]) * _UNITS[found[2].lower()]
