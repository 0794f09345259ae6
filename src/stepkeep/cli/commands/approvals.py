"""`stepkeep approvals`: the open gates, with what they ask and the command that decides each. Reads only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from msgspec.structs import replace

from stepkeep.cli.arguments import By, opt
from stepkeep.cli.asking import ask
from stepkeep.cli.printer import answer, say
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import FAILED, SUCCEEDED
from stepkeep.edges.safe_text import inert_line

if TYPE_CHECKING:
    from stepkeep.operations.approvals import OpenGate

DEFAULT_LIMIT = 20
MOST_SHOWN = 300
"""Characters of a prompt or a fact on a line."""


def approvals(
    settings: Settings,
    mine: Annotated[bool, opt("--mine", "Only those that you may decide.")] = False,
    late: Annotated[bool, opt("--late", "Only those past their deadline, or escalated to the next people.")] = False,
    limit: Annotated[int, opt("--limit", "At most this many.", min=1, max=1000)] = DEFAULT_LIMIT,
    after: Annotated[str | None, opt("--after", "PLACE", "Where the page before ended: the next page.")] = None,
    by: By = None,
) -> int:
    """List open gates, oldest run first: what is asked, what is shown, who has decided, and whether you may."""
    found = ask(settings, lambda engine: engine.approvals(mine=mine, late=late, limit=limit, after=after, by=by))
    name = () if by is None else ("--by", by)
    gates = [
        replace(one, command=settings.command("approve", one.run_id, one.step, *name) if one.may_decide else None)
        for one in found.approvals
    ]
    unreadable = found.unreadable or []
    if settings.json:
        answer(replace(found, approvals=gates))
        return FAILED if unreadable else SUCCEEDED
    if not gates:
        which = " that you may decide" if mine else ""
        say(f"no {'late ' if late else ''}gate is open{which} in {settings.place}")
    for gate in gates:
        for line in lines(gate):
            say(line)
    for one in unreadable:
        say(f"run {one.run_id}: {one.message}")
    if found.next is not None:
        filters = [*(["--mine"] if mine else []), *(["--late"] if late else []), *name]
        bound = [] if limit == DEFAULT_LIMIT else ["--limit", str(limit)]
        say(f"more: {settings.command('approvals', *filters, *bound, '--after', found.next)}")
    return FAILED if unreadable else SUCCEEDED


def lines(one: OpenGate) -> Iterator[str]:
    """One gate in a few lines. The last one is the command that decides it, or the reason why you may not."""
    level = f", level {one.level}" if one.level else ""
    ends = "" if one.until is None else f", {'was due' if one.late and not level else 'until'} {one.until}"
    yield f"{one.step} of {one.workflow} ({one.run_id}), asked for by {', '.join(one.asked_by)}{level}{ends}"
    if one.prompt:
        yield f"  {inert_line(one.prompt, MOST_SHOWN)}"
    for name, value in one.shown.items():
        yield f"  {inert_line(str(name), MOST_SHOWN)}: {inert_line(_plain(value), MOST_SHOWN)}"
    if one.rule:
        yield f"  held by {one.rule}"
    told = [f"{vote.by} {vote.decision} at {vote.at}" for vote in one.votes]
    if one.changes is not None:
        asked = inert_line(one.changes.comment, MOST_SHOWN)
        yield f"  changes requested by {one.changes.by} at {one.changes.at}: {asked}"
    yield "  " + "; ".join([f"needs {one.needs.approved} more by {one.needs.of}", *told])
    yield f"  {one.command}" if one.refusal is None else f"  you may not: {one.refusal.message}"


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    import msgspec

    return msgspec.json.encode(value).decode()
