"""Arguments and options: how they are declared, and those that several commands share, said once."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from stepkeep.kernel.errors import InvalidInput

LARGEST = 2_147_483_647
"""The largest number that an option takes where nothing else bounds it."""


def finite(value: float | None) -> float | None:
    """Refuse what is no number: it is neither smaller nor larger than any bound, so that bounds let it pass."""
    if value is not None and math.isnan(value):
        raise typer.BadParameter("nan is not a number.")
    return value


def opt(*said: str, **more: Any) -> Any:
    """An option: its names, what stands for its value (flags and numbers have nothing), and its help.

    `--limit` of a command that is an operation may say here what differs from the row: see `_extended`.
    """
    names = [one for one in said if one.startswith("-")]
    *metavar, help_ = said[len(names) :]
    return _extended(typer.Option, more, *names, metavar=metavar[0] if metavar else None, help=help_)


def arg(metavar: str, help: str, **more: Any) -> Any:  # noqa: A002 - typer's own word
    """An argument: what stands for it, and its help."""
    return _extended(typer.Argument, more, metavar=metavar, help=help, show_default=False)


def _extended(make: Callable[..., Any], more: dict[str, Any], *names: str, **given: Any) -> Any:
    """With what counts where it belongs to an operation: `reads` makes a value of the text, `typed_as` is its name in
    the signature, `by_default` and `kind` are its default and type where they are not those of the row; `is_run` is a
    run, which a part of its id names. `bounds_of` names the operation and the argument whose bounds an option of
    another command has."""
    own: dict[str, Any] = {"reads": None, "typed_as": None, "kind": None, "is_run": False, "bounds_of": ""}
    own["by_default"] = inspect.Parameter.empty
    own = {name: more.pop(name, value) for name, value in own.items()}
    made = make(*names, **{**given, **more})
    vars(made).update(own)
    return made


def options_of(kind: Any) -> list[inspect.Parameter]:
    """The options that the fields of a named tuple declare, as parameters of a command."""
    named = inspect.Parameter.KEYWORD_ONLY
    hints = get_type_hints(kind, include_extras=True)
    defaults = kind._field_defaults
    return [
        inspect.Parameter(one, named, default=defaults.get(one, inspect.Parameter.empty), annotation=hints[one])
        for one in kind._fields
    ]


def by_name(parameter: inspect.Parameter) -> inspect.Parameter:
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)


Text = str | None
Texts = list[str] | None
RUN = arg("RUN", "The run's id, or enough of its beginning or end.", typed_as="run", is_run=True)
BY = opt("--by", "NAME", "Who asks for it; the user of this process by default.")
RunId = Annotated[str, RUN]
By = Annotated[str | None, BY]
Apps = Annotated[list[str] | None, opt("--app", "MODULE|FILE.py", "Code with handlers to import; may be repeated.")]
Elsewhere = Annotated[
    bool,
    opt(
        "--handlers-elsewhere",
        "The code of the handlers is not here: take the file as it is, without what decorators say.",
    ),
]
Input = Annotated[str | None, opt("--input", "JSON|@FILE", "The run's input; @- reads standard input.")]
As = Annotated[str | None, opt("--as", "DIALECT", "In the words of this dialect; `stepkeep dialects` lists them.")]
WrittenAs = Annotated[
    str | None, opt("--as", "DIALECT", "What the file is written in, where its content does not show it.")
]
Capabilities = Annotated[list[str] | None, opt("--capability", "WORD", "What this machine can do; may be repeated.")]
ArchiveRoot = Annotated[Path, opt("--archive-root", "DIR", "Archives that definitions declare stay below this folder.")]
Concurrency = Annotated[int, opt("--concurrency", "How many steps run at once.", min=1, max=10_000)]
Threads = Annotated[
    int,
    opt(
        "--threads",
        "How many of them may be other than `async def`: threads, processes, commands, HTTP calls.",
        min=1,
        max=10_000,
    ),
]
IdempotencyKey = Annotated[str | None, opt("--idempotency-key", "KEY", "The same key never makes a second run.")]


Roots = Annotated[bool, opt("--roots", "No child runs.", show_default=False)]
OfWorkflow = Annotated[str | None, opt("--workflow", "NAME", "Only runs of this one.")]
OfBusinessKey = Annotated[str | None, opt("--business-key", "KEY", "Only runs with this business key.")]
CURSOR = opt("--cursor", "NEXT", "Go on after the page that ended with it.")
OfCorrelationId = Annotated[str | None, opt("--correlation-id", "ID", "Only runs with this correlation id.")]


def run_filter(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Which runs the options of a command choose, as the engine takes it."""
    same = ("workflow", "business_key", "correlation_id", "error", "text")
    return {
        **{name: given[name] for name in same},
        "roots": given["roots"] or None,
        "state": given["state"] or None,
        "labels": dict(label_of(one) for one in given["label"] or ()) or None,
        "since": None if given["since"] is None else moment_of(given["since"], "--since"),
        "until": None if given["until"] is None else moment_of(given["until"], "--until"),
    }


def label_of(text: str) -> tuple[str, str]:
    """A label from NAME=TEXT."""
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidInput(f"--label takes NAME=TEXT, not {text!r}.")
    return name, value


def moment_of(text: str, option: str, *, is_ago: bool = True, beside: str = "") -> datetime:
    """A time: ISO 8601 with a zone (UTC where it has none), or with `is_ago` a duration ago.

    `beside` names what the option takes beside a time.
    """
    from stepkeep.definition.durations import InvalidDuration, parse_duration

    if is_ago:
        with suppress(InvalidDuration):
            return datetime.now(UTC) - timedelta(microseconds=parse_duration(text.removesuffix(" ago")))
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        ago = ", or a duration ago such as 2h" if is_ago else ""
        raise InvalidInput(f"{option} takes {beside}a time such as 2026-11-03T10:15Z{ago}.") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
