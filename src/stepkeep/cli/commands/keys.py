"""`stepkeep keys`: make, rotate, revoke and list API keys. A key is shown once, or written to a file of its own."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepkeep.cli.arguments import MOST_QUOTA, By, arg, moment_of, opt
from stepkeep.cli.asking import ask, table, tell
from stepkeep.cli.printer import answer, say
from stepkeep.cli.settings import Settings, with_settings
from stepkeep.cli.status import SUCCEEDED
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.engine import AsyncEngine
    from stepkeep.operations.keys import Key, KeyList, MadeKey, RevokedKey

app = typer.Typer(help="API keys, which say who acts.", no_args_is_help=True)

KeyId = Annotated[str, arg("KEY", "The id of the key.")]
MaxRuns = Annotated[
    int | None, opt("--max-concurrent-runs", "N", "How many unfinished runs; no limit.", min=1, max=MOST_QUOTA)
]
MaxRequests = Annotated[
    int | None, opt("--max-requests-per-min", "N", "How many HTTP requests; no limit.", min=1, max=MOST_QUOTA)
]
Queues = Annotated[
    list[str] | None, opt("--queue", "NAME", 'Work on this queue alone, repeated; the default one is "".')
]
Handlers = Annotated[list[str] | None, opt("--handler", "NAME", "Work on steps of this handler alone, repeated.")]
Output = Annotated[
    Path | None, opt("--output", "-o", "FILE", "Write the key to this new file, readable by its owner alone.")
]


def create(
    settings: Settings,
    owner: Annotated[str, arg("OWNER", "The user or service that acts.")],
    scope: Annotated[
        list[str],
        opt("--scope", "SCOPE", "What for, repeated: read, start, decide, complete, operate, work, admin, vouch."),
    ],
    expires: Annotated[str | None, opt("--expires", "TIME|DURATION", "Its end, such as 90d; none by default.")] = None,
    max_concurrent_runs: MaxRuns = None,
    max_requests_per_min: MaxRequests = None,
    queue: Queues = None,
    handler: Handlers = None,
    output: Output = None,
    by: By = None,
) -> int:
    """Make a key. It is shown once and kept nowhere: only a hash of its secret is stored."""
    given: dict[str, Any] = {
        "scopes": scope,
        "max_concurrent_runs": max_concurrent_runs,
        "max_requests_per_min": max_requests_per_min,
        "queues": queue or None,
        "handlers": handler or None,
        "by": by,
    }
    given |= {} if expires is None else _end(expires)
    return _made(settings, lambda engine: engine.keys.create(owner, **given), output)


def rotate(
    settings: Settings,
    key: KeyId,
    overlap: Annotated[str, opt("--overlap", "DURATION", "How long the old key goes on to work.")] = "1d",
    output: Output = None,
    by: By = None,
) -> int:
    """Make a new key with the same owner and scopes. The old one ends after the overlap."""
    return _made(settings, lambda engine: engine.keys.rotate(key, overlap=overlap, by=by), output)


def revoke(settings: Settings, key: KeyId, by: By = None) -> int:
    """End a key now, with the keys that replaced it and their sessions: every decision refuses them from then on."""

    def words(found: RevokedKey) -> Iterator[str]:
        yield f"key {key} of {found.key.owner} is revoked by {found.key.revoked_by}"
        if found.successors or found.sessions:
            yield f"with it ended: keys that replaced it: {len(found.successors)}, sessions: {found.sessions}"

    return tell(settings, lambda engine: engine.keys.revoke(key, by=by), words)


def list_(
    settings: Settings,
    owner: Annotated[str | None, opt("--owner", "NAME", "Only keys of this owner.")] = None,
) -> int:
    """List keys, without their secrets."""

    def words(found: KeyList) -> None:
        shown = ("id", "owner", "state", "scopes", "created_by", "expires_at")
        rows = [{**{name: key[name] for name in shown}, "scopes": " ".join(key.scopes)} for key in found.keys]
        # A column for limits only where a key has some.
        if any(map(_limits, found.keys)):
            rows = [{**row, "works on": _limits(key)} for row, key in zip(rows, found.keys, strict=True)]
        table(rows, "no key was ever made")

    return tell(settings, lambda engine: engine.keys.list(owner=owner), words)


def _limits(key: Key) -> str:
    """The queues and handlers that a key is limited to, in words."""
    from stepkeep.kernel.authority import WorkLimits

    queues, handlers = (None if one is None else tuple(one) for one in (key.queues, key.handlers))
    return str(WorkLimits(queues=queues, handlers=handlers))


def _end(text: str) -> dict[str, Any]:
    """When a key ends: after a duration, or at a time."""
    from stepkeep.definition.durations import InvalidDuration, parse_duration

    try:
        parse_duration(text)
    except InvalidDuration:
        return {"expires_at": moment_of(text, "--expires", is_ago=False)}
    return {"expires_in": text}


@contextmanager
def _reserved(output: Path | None) -> Iterator[int | None]:
    """A new file that only its owner may read, made before the key is; removed if no key is made."""
    if output is None:
        yield None
        return
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as problem:
        raise InvalidInput(f"{output}: {problem.strerror or problem}. A key is written to a new file.") from None
    try:
        yield descriptor
    except BaseException:
        output.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def _made(settings: Settings, work: Callable[[AsyncEngine], Awaitable[MadeKey]], output: Path | None) -> int:
    """Make a key, and show it or write it to a new file."""
    with _reserved(output) as descriptor:
        found = ask(settings, work)
        if descriptor is not None:
            os.write(descriptor, f"{found.secret}\n".encode())
    if settings.json:
        told = found.as_json()
        if output is not None:
            told = {**{name: one for name, one in told.items() if name != "secret"}, "file": str(output)}
        answer(told)
        return SUCCEEDED
    key = found.key
    ends = f"; it ends at {key.expires_at}" if key.expires_at else ""
    only = f" (only {_limits(key)})" if _limits(key) else ""
    say(f"key {key.id} of {key.owner} for {', '.join(key.scopes)}{only}{ends}")
    if output is None:
        say(found.secret)
        say("This is the only time it is shown. Use it in STEPKEEP_KEY, or in a file: --key-file FILE.")
    else:
        say(f"It is in {output}. Use it: --key-file {output}, or STEPKEEP_KEY_FILE.")
    if found.replaced:
        say(f"key {found.replaced.id} works until {found.replaced.expires_at}")
    return SUCCEEDED


app.command("create")(with_settings(create))
app.command("list")(with_settings(list_))
app.command("rotate")(with_settings(rotate))
app.command("revoke")(with_settings(revoke))
