"""The options of every command: database, service or profile, tenant, key, output format. Declared once, added to each.

It reads the options, and decides which of them counts; `session` opens what they name. It imports nothing heavy.
"""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Annotated, Any, Concatenate, NamedTuple, ParamSpec

import typer

from stepkeep.cli.arguments import by_name, opt, options_of
from stepkeep.cli.profiles import Profile, complete_profile, find_profile
from stepkeep.edges.own_process import variables
from stepkeep.edges.redaction import database_url
from stepkeep.kernel.errors import InvalidInput

P = ParamSpec("P")

DEFAULT_DB = "sqlite:///.stepkeep/stepkeep.db"
PANEL = "Everywhere"
WAYS = {"db": "STEPKEEP_DB", "server": "STEPKEEP_SERVER", "profile": "STEPKEEP_PROFILE"}
"""The options that say where runs are, one of which counts, and their variables."""


def _option(*said: str, **more: Any) -> Any:
    return opt(*said, rich_help_panel=PANEL, **more)


class SharedOptions(NamedTuple):
    """The options as they were typed."""

    db: Annotated[
        str, _option("--db", "URL", "The database: sqlite:///FILE or postgresql://…", envvar="STEPKEEP_DB")
    ] = DEFAULT_DB
    server: Annotated[
        str | None,
        _option("--server", "URL", "A service in place of a database. It needs a key.", envvar="STEPKEEP_SERVER"),
    ] = None
    profile: Annotated[
        str | None,
        _option(
            "--profile",
            "NAME",
            "A service or database by its name in the file of profiles.",
            envvar="STEPKEEP_PROFILE",
            autocompletion=complete_profile,
        ),
    ] = None
    tenant: Annotated[str, _option("--tenant", "NAME", "Whose runs these are.")] = "default"
    key_file: Annotated[
        str | None,
        _option(
            "--key-file",
            "FILE",
            "A file with an API key, whose owner acts (also: the key itself in STEPKEEP_KEY).",
            envvar="STEPKEEP_KEY_FILE",
        ),
    ] = None
    json: Annotated[bool, _option("--json", "Answer with one JSON object on standard output.")] = False
    traceback: Annotated[
        bool,
        _option("--traceback", "Show where an unexpected error came from (also: STEPKEEP_TRACEBACK=1)."),
    ] = False
    """`main` looks for it, so that it also works for what goes wrong before a command runs."""


SHARED_OPTIONS = frozenset(f"--{name.replace('_', '-')}" for name in SharedOptions._fields)


class CommandNeeds(Enum):
    """What a command works on."""

    EITHER = "a database or a service"
    DATABASE = "the database itself"
    NOTHING = "files, or what it asks for by itself"


class Settings(NamedTuple):
    """The options that all commands share."""

    db: str = DEFAULT_DB
    tenant: str = "default"
    json: bool = False
    key_file: str | None = None
    owns_process: bool = False
    """Whether the process does nothing else than this command."""
    server: str | None = None
    """The address of a service, which is asked in place of the database."""
    key: str | None = None
    """The key that a profile holds."""
    typed: frozenset[str] = frozenset()
    """Which of these options were typed."""
    profile: str | None = None

    @property
    def source(self) -> str:
        """Where the runs are, without a password."""
        return self.server or database_url(self.db)

    @property
    def whose(self) -> str:
        """The tenant in words. That of a service is known to its key alone."""
        return "the tenant" if self.server is not None else f"tenant {self.tenant}"

    def command(self, *words: str) -> str:
        """A command line with the same place, tenant and key."""
        given = {"profile": self.profile, "server": self.server, "db": database_url(self.db)}
        where = [word for way, value in given.items() if way in self.typed for word in (f"--{way}", str(value))]
        whose = ["--tenant", self.tenant] if self.tenant != "default" else []
        key = ["--key-file", str(self.key_file)] if "key_file" in self.typed else []
        return shlex.join(["stepkeep", *words, *where, *whose, *key])

    def require_database(self, what: str) -> None:
        """Refuse what a service does not do for others."""
        if self.server is not None:
            names = f"the profile {self.profile} names" if self.profile else f"{self.server} is"
            raise InvalidInput(f"{what} needs the database itself, and {names} a service: give --db URL instead.")


def with_settings(
    function: Callable[Concatenate[Settings, P], int], needs: CommandNeeds = CommandNeeds.EITHER
) -> Callable[..., int]:
    """Turn a function whose first parameter is Settings into one that has the shared options instead."""

    def command(**given: Any) -> int:
        shared = SharedOptions(*(given.pop(name) for name in SharedOptions._fields))
        return function(_settings(given.pop("ctx"), shared, needs), **given)  # type: ignore[call-arg]

    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    parameters = [context, *map(by_name, own), *options_of(SharedOptions)]
    shown: Any = command
    shown.__signature__ = inspect.Signature(parameters)
    shown.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    shown.__name__, shown.__doc__ = function.__name__, function.__doc__
    return shown  # type: ignore[no-any-return]


def _settings(context: typer.Context, given: SharedOptions, needs: CommandNeeds) -> Settings:
    """What the shared options come to: an option counts before a variable, and a variable before the profile in use."""
    source = {name: getattr(context.get_parameter_source(name), "name", "") for name in (*WAYS, "tenant", "key_file")}
    typed = frozenset(name for name, where in source.items() if where == "COMMANDLINE")
    named = _where(context, source, needs)
    settings = Settings(
        db=given.db,
        tenant=given.tenant,
        json=given.json,
        key_file=given.key_file,
        owns_process=context.obj is True,
        server=given.server if named == "server" else None,
        typed=typed,
        profile=given.profile if named == "profile" else None,
    )
    if settings.db.startswith(("http://", "https://")):
        raise InvalidInput("--db names a database. Name a service with --server URL.")
    if needs is CommandNeeds.NOTHING:
        return settings
    if named in (None, "profile") and (profile := find_profile(settings.profile)) is not None:
        settings = _with_profile(settings, profile)
    if settings.server is not None and settings.tenant != "default":
        raise InvalidInput("a service takes no --tenant: the key names the tenant.")
    if needs is CommandNeeds.DATABASE:
        settings.require_database(f"`{context.command_path}`")
    return settings


def _where(context: typer.Context, source: Mapping[str, str], needs: CommandNeeds) -> str | None:
    """The option that says where the runs are; else the variable, for a command that needs to know."""
    for kind, names, do in (
        ("COMMANDLINE", {way: f"--{way}" for way in WAYS}, "give"),
        ("ENVIRONMENT", WAYS if needs is not CommandNeeds.NOTHING else {}, "unset"),
    ):
        named = [way for way in names if source[way] == kind]
        if len(named) > 1:
            one, other, *_ = (names[way] for way in named)
            context.fail(f"{one} and {other} both say where the runs are: {do} one of them.")
        if named:
            return named[0]
    return None


def _with_profile(settings: Settings, profile: Profile) -> Settings:
    """The settings with what a profile says. Its key counts before that of a variable only where it was asked for by
    an option."""
    has_key = settings.key_file is not None or bool(variables().get("STEPKEEP_KEY"))
    is_asked = "profile" in settings.typed and (profile.key_file or profile.key)
    if "key_file" not in settings.typed and (is_asked or not has_key):
        settings = settings._replace(key_file=profile.key_file, key=profile.key)
    return settings._replace(
        profile=profile.name,
        server=profile.server,
        db=profile.db or settings.db,
        tenant=settings.tenant if "tenant" in settings.typed else profile.tenant,
    )
