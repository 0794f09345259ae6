"""`stepkeep approvals`: the open gates, with what they ask and the command that decides each. Reads only."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from stepkeep.cli.arguments import By
from stepkeep.cli.printer import answer, say
from stepkeep.cli.session import open_engine
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import FAILED, SUCCEEDED
from stepkeep.edges.redaction import database_url
from stepkeep.edges.safe_text import inert_line

DEFAULT_LIMIT = 20
MOST_SHOWN = 300
"""Characters of a prompt or a fact on a line."""


def approvals(
    settings: Settings,
    mine: Annotated[bool, typer.Option("--mine", help="Only those that you may decide.")] = False,
    late: Annotated[
        bool, typer.Option("--late", help="Only those past their deadline, or escalated to the next people.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most this many.")] = DEFAULT_LIMIT,
    after: Annotated[
        str | None, typer.Option("--after", metavar="PLACE", help="Where the page before ended: the next page.")
    ] = None,
    by: By = None,
) -> int:
    """List open gates, oldest run first: what is asked, what is shown, who has decided, and whether you may."""
    found = asyncio.run(_list(settings, mine=mine, late=late, limit=limit, after=after, by=by))
    name = () if by is None else ("--by", by)
    for one in found["approvals"]:
        one["command"] = settings.command("approve", one["run_id"], one["step"], *name) if one["may_decide"] else None
    unreadable = found.get("unreadable", [])
    if settings.json:
        answer(found)
        return FAILED if unreadable else SUCCEEDED
    if not found["approvals"]:
        which = " that you may decide" if mine else ""
        say(f"no {'late ' if late else ''}gate is open{which} in {database_url(settings.db)}")
    for one in found["approvals"]:
        for line in lines(one):
            say(line)
    for one in unreadable:
        say(f"run {one['run_id']}: {one['message']}")
    if found["next"] is not None:
        filters = [*(["--mine"] if mine else []), *(["--late"] if late else []), *name]
        bound = [] if limit == DEFAULT_LIMIT else ["--limit", str(limit)]
        say(f"more: {settings.command('approvals', *filters, *bound, '--after', found['next'])}")
    return FAILED if unreadable else SUCCEEDED


async def _list(settings: Settings, **asked: Any) -> dict[str, Any]:
    async with open_engine(settings) as engine:
        return await engine.approvals(**asked)


def lines(one: dict[str, Any]) -> Iterator[str]:
    """One gate in a few lines. The last one is the command that decides it, or the reason why you may not."""
    level = f", level {one['level']}" if one["level"] else ""
    ends = "" if one["until"] is None else f", {'was due' if one['late'] and not level else 'until'} {one['until']}"
    asked = f"asked for by {', '.join(one['asked_by'])}"
    yield f"{one['step']} of {one['workflow']} ({one['run_id']}), {asked}{level}{ends}"
    if one["prompt"]:
        yield f"  {inert_line(one['prompt'], MOST_SHOWN)}"
    for name, value in one["facts"].items():
        yield f"  {inert_line(str(name), MOST_SHOWN)}: {inert_line(_plain(value), MOST_SHOWN)}"
    if one["rule"]:
        yield f"  held by {one['rule']}"
    needs = one["needs"]
    told = [f"{vote['by']} {vote['decision']} at {vote['at']}" for vote in one["votes"]]
    if (changes := one["changes"]) is not None:
        yield f"  changes requested by {changes['by']} at {changes['at']}: {inert_line(changes['comment'], MOST_SHOWN)}"
    yield "  " + "; ".join([f"needs {needs['approved']} more by {needs['of']}", *told])
    yield f"  {one['command']}" if one["may_decide"] else f"  you may not: {one['refusal']['message']}"


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    import msgspec

    return msgspec.json.encode(value).decode()
