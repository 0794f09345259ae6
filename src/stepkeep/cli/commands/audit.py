"""`stepkeep audit`: what was asked for, by whom, and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from stepkeep.cli.arguments import arg, moment_of, opt
from stepkeep.cli.asking import table, tell
from stepkeep.cli.printer import say
from stepkeep.cli.settings import Settings

if TYPE_CHECKING:
    from stepkeep.operations.audit import AuditEntry, AuditPage


def audit(
    settings: Settings,
    target: Annotated[str | None, arg("[TARGET]", "Only about this run, user, key or other thing.")] = None,
    actor: Annotated[str | None, opt("--actor", "NAME", "Only what this person asked for.")] = None,
    operation: Annotated[str | None, opt("--operation", "NAME", "Only this one: approve.")] = None,
    outcome: Annotated[str | None, opt("--outcome", "OUTCOME", "Only done, refused or failed ones.")] = None,
    key: Annotated[str | None, opt("--key", "ID", "Only with the API key that has this id.")] = None,
    since: Annotated[str | None, opt("--since", "TIME", "Since: 2026-11-03T10:15Z, or 2h ago.")] = None,
    until: Annotated[str | None, opt("--until", "TIME", "Before then.")] = None,
    cursor: Annotated[str | None, opt("--cursor", "NEXT", "Continue after the page that ended with it.")] = None,
    limit: Annotated[int, opt("--limit", "How many at most.", min=1, max=10_000)] = 50,
) -> int:
    """Search the audit log: operations with API keys and through the service, refusals, and changes of people."""
    given = {"actor": actor, "target": target, "operation": operation, "outcome": outcome, "key": key}
    asked: dict[str, Any] = {
        **given,
        "since": None if since is None else moment_of(since, "--since"),
        "until": None if until is None else moment_of(until, "--until"),
        "cursor": cursor,
        "limit": limit,
    }

    def words(found: AuditPage) -> None:
        table([_row(one) for one in found.audit], "no entry of the audit log fits")
        if found.next:
            options = [f"--{name}={value}" for name, value in given.items() if value is not None and name != "target"]
            about = [] if target is None else [target]
            say(f"there are more: {settings.command('audit', *about, *options, '--cursor', found.next)}")
        if not found.chain.is_intact:
            from stepkeep.operations.audit import told_of_chain

            say(f"the audit log was changed by hand: {told_of_chain(found.chain)}")

    return tell(settings, lambda engine: engine.audit.list(**asked), words, fails=lambda one: not one.chain.is_intact)


def _row(one: AuditEntry) -> dict[str, Any]:
    vouched = "" if one.vouched_by is None else f" (by {one.vouched_by})"
    return {
        "at": one.at,
        "actor": f"{one.actor}{vouched}",
        "key": one.key or "",
        "operation": one.operation,
        "target": one.target,
        "outcome": one.outcome if one.code is None else f"{one.outcome}: {one.code}",
        "from": one.address or "",
    }
