"""The options of every command: database, tenant, key, output format. Declared once, added to each command.

It reads the options and decides nothing; `session` opens the database. It imports nothing heavy.
"""

from __future__ import annotations

import inspect
import os
import shlex
from collections.abc import Callable
from typing import Annotated, Any, Concatenate, NamedTuple, ParamSpec

import typer

from stepkeep.edges.redaction import database_url

P = ParamSpec("P")

DEFAULT_DB = "sqlite:///.stepkeep/stepkeep.db"
PANEL = "Everywhere"
SHARED_OPTIONS = frozenset({"--db", "--tenant", "--key-file", "--json", "--traceback"})

Db = Annotated[
    str,
    typer.Option(
        "--db",
        envvar="STEPKEEP_DB",
        metavar="URL",
        help="The database: sqlite:///FILE or postgresql://…",
        rich_help_panel=PANEL,
    ),
]
Tenant = Annotated[
    str,
    typer.Option("--tenant", metavar="NAME", help="Whose runs these are.", rich_help_panel=PANEL),
]
KeyFile = Annotated[
    str | None,
    typer.Option(
        "--key-file",
        envvar="STEPKEEP_KEY_FILE",
        metavar="FILE",
        help="A file with an API key, whose owner acts (also: the key itself in STEPKEEP_KEY).",
        rich_help_panel=PANEL,
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Answer with one JSON object on standard output.", rich_help_panel=PANEL),
]
Traceback = Annotated[
    bool,
    typer.Option(
        "--traceback",
        help="Show where an unexpected error came from (also: STEPKEEP_TRACEBACK=1).",
        rich_help_panel=PANEL,
    ),
]


class Settings(NamedTuple):
    """The options that all commands share."""

    db: str = DEFAULT_DB
    tenant: str = "default"
    json: bool = False
    db_was_typed: bool = False
    key_file: str | None = None
    owns_process: bool = False
    """Whether the process does nothing else than this command."""

    def command(self, *words: str) -> str:
        """A command line with the same database, tenant and key."""
        where = ["--db", database_url(self.db)] if self.db_was_typed else []
        whose = ["--tenant", self.tenant] if self.tenant != "default" else []
        key = ["--key-file", self.key_file] if self.key_file and "STEPKEEP_KEY_FILE" not in os.environ else []
        return shlex.join(["stepkeep", *words, *where, *whose, *key])


def with_settings(function: Callable[Concatenate[Settings, P], int]) -> Callable[..., int]:
    """Turn a function whose first parameter is Settings into one that has the shared options instead."""

    def command(**given: Any) -> int:
        context = given.pop("ctx")
        source = context.get_parameter_source("db")
        settings = Settings(
            db=given.pop("db"),
            tenant=given.pop("tenant"),
            json=given.pop("json"),
            key_file=given.pop("key_file"),
            db_was_typed=source is not None and source.name == "COMMANDLINE",
            owns_process=context.obj is True,
        )
        given.pop("traceback")  # main looks for it, so that it also works for what goes wrong before a command runs
        return function(settings, **given)  # type: ignore[call-arg]

    kind = inspect.Parameter.KEYWORD_ONLY
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    shared = [
        inspect.Parameter("db", kind, default=DEFAULT_DB, annotation=Db),
        inspect.Parameter("tenant", kind, default="default", annotation=Tenant),
        inspect.Parameter("key_file", kind, default=None, annotation=KeyFile),
        inspect.Parameter("json", kind, default=False, annotation=Json),
        inspect.Parameter("traceback", kind, default=False, annotation=Traceback),
    ]
    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    parameters = [context, *(parameter.replace(kind=kind) for parameter in own), *shared]
    shown: Any = command
    shown.__signature__ = inspect.Signature(parameters)
    shown.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    shown.__name__, shown.__doc__ = function.__name__, function.__doc__
    return shown  # type: ignore[no-any-return]
