"""Arguments and options that several commands share, declared once so that they read the same everywhere."""

from __future__ import annotations

import math
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from stepkeep.kernel.errors import InvalidInput

MOST_QUOTA = 1_000_000_000
LARGEST = 2_147_483_647
"""The largest number that an option takes where nothing else bounds it."""


def finite(value: float | None) -> float | None:
    """Refuse what is no number: it is neither smaller nor larger than any bound, so that bounds let it pass."""
    if value is not None and math.isnan(value):
        raise typer.BadParameter("nan is not a number.")
    return value


RunId = Annotated[
    str, typer.Argument(metavar="RUN", help="The run's id, or enough of its beginning or end.", show_default=False)
]
Apps = Annotated[
    list[str] | None,
    typer.Option("--app", metavar="MODULE|FILE.py", help="Code with handlers to import; may be repeated."),
]
Elsewhere = Annotated[
    bool,
    typer.Option(
        "--handlers-elsewhere",
        help="The code of the handlers is not here: take the file as it is, without what decorators say.",
    ),
]
Input = Annotated[
    str | None,
    typer.Option("--input", metavar="JSON|@FILE", help="The run's input; @- reads standard input."),
]
As = Annotated[
    str | None,
    typer.Option("--as", metavar="DIALECT", help="In the words of this dialect; `stepkeep dialects` lists them."),
]
WrittenAs = Annotated[
    str | None,
    typer.Option("--as", metavar="DIALECT", help="What the file is written in, where its content does not show it."),
]
By = Annotated[
    str | None,
    typer.Option("--by", metavar="NAME", help="Who asks for it; the user of this process by default."),
]
Capabilities = Annotated[
    list[str] | None,
    typer.Option("--capability", metavar="WORD", help="What this machine can do; may be repeated."),
]
ArchiveRoot = Annotated[
    Path,
    typer.Option("--archive-root", metavar="DIR", help="Archives that definitions declare stay below this folder."),
]
Concurrency = Annotated[int, typer.Option("--concurrency", min=1, max=10_000, help="How many steps run at once.")]
Threads = Annotated[
    int,
    typer.Option(
        "--threads",
        min=1,
        max=10_000,
        help="How many of them may be other than `async def`: threads, processes, commands, HTTP calls.",
    ),
]


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
