"""`stepkeep users` and `stepkeep delegate`: people, their roles and groups, delegations, and the record of changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepkeep.cli.arguments import By, arg, moment_of, opt
from stepkeep.cli.asking import ask, table, tell
from stepkeep.cli.printer import answer, say
from stepkeep.cli.settings import Settings, with_settings
from stepkeep.cli.status import FAILED, SUCCEEDED
from stepkeep.edges.safe_text import inert_line
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.engine import AsyncEngine
    from stepkeep.operations.people_journal import HistoryEntry, PeopleChain
    from stepkeep.operations.principals import (
        Delegation,
        DelegationView,
        DisabledUser,
        Membership,
        MembershipView,
        User,
        UserDetailsView,
    )

app = typer.Typer(help="Users and services, their roles and groups.", no_args_is_help=True)

Name = Annotated[str, arg("NAME", "The name of the user or service.")]
Holder = Annotated[str, arg("NAME", "The user or service, or with --is-group the group.")]
Role = Annotated[str | None, opt("--role", "ROLE", "The role.")]
Group = Annotated[str | None, opt("--group", "GROUP", "The group.")]
IsGroup = Annotated[bool, opt("--is-group", "NAME is a group: its members share the role.")]
From = Annotated[str | None, opt("--from", "TIME", "From when on it counts; at once by default.")]
Until = Annotated[str | None, opt("--until", "TIME", "Until when it counts.")]


def create(
    settings: Settings,
    name: Name,
    service: Annotated[bool, opt("--service", "A program, not a person.")] = False,
    display: Annotated[str, opt("--display", "TEXT", "The name to show to people.")] = "",
    by: By = None,
) -> int:
    """Register a user or a service. A name that looks like a registered one is refused."""
    return tell(
        settings,
        lambda engine: engine.users.create(name, kind="service" if service else "user", display=display, by=by),
        lambda found: (
            f"{found.user.kind} {name} is registered, by {found.user.created_by}",
            f"Give roles: {settings.command('users', 'grant', name, '--role', 'ROLE')}",
        ),
        creates=True,
    )


def list_(settings: Settings) -> int:
    """List users and services."""

    async def every(engine: AsyncEngine) -> dict[str, list[User]]:
        page = await engine.users.list()
        users = page.users
        while page.next:
            page = await engine.users.list(after=page.next)
            users += page.users
        return {"users": users}

    shown = ("name", "kind", "display", "created_at", "created_by", "disabled_at")
    return tell(settings, every, lambda found: table(found["users"], "no user is registered", shown))


def show(settings: Settings, name: Name) -> int:
    """Show a user: roles and groups now, memberships, delegations, keys."""

    def words(found: UserDetailsView) -> Iterator[str]:
        user = found.user
        display = f" ({user.display})" if user.display else ""
        ended = f"; disabled at {user.disabled_at} by {user.disabled_by}" if user.disabled_at else ""
        yield f"{user.kind} {name}{display}, registered at {user.created_at} by {user.created_by}{ended}"
        yield f"roles: {', '.join(user.roles) or 'none'}"
        yield f"groups: {', '.join(user.groups) or 'none'}"
        yield f"keys: {', '.join(user.keys) or 'none'}"
        for one in user.memberships:
            yield f"  {_membership(one)}, given at {one.granted_at} by {one.granted_by}{_dates(one)}"
        for two in user.delegations:
            yield f"  {_delegation(two)}, since {two.granted_at}{_dates(two)}"

    return tell(settings, lambda engine: engine.users.show(name), words)


def disable(settings: Settings, name: Name, by: By = None) -> int:
    """Refuse a user in every decision from now on, and revoke the user's keys."""

    def words(found: DisabledUser) -> Iterator[str]:
        keys = len(found.revoked_keys)
        yield f"{name} is disabled by {found.user.disabled_by}; {keys} key{'' if keys == 1 else 's'} revoked"
        yield f"Undo it: {settings.command('users', 'enable', name)}; keys are made anew."

    return tell(settings, lambda engine: engine.users.disable(name, by=by), words)


def enable(settings: Settings, name: Name, by: By = None) -> int:
    """Let a disabled user act again. Revoked keys stay revoked."""
    key = settings.command("keys", "create", name, "--scope", "decide")
    said = f"{name} may act again; make a key: {key}"
    return tell(settings, lambda engine: engine.users.enable(name, by=by), lambda _: said)


def grant(
    settings: Settings,
    name: Holder,
    role: Role = None,
    group: Group = None,
    is_group: IsGroup = False,
    from_: From = None,
    until: Until = None,
    by: By = None,
) -> int:
    """Give a user a role or a group, within dates if given; or give a group a role."""
    begins, ends = _moment(from_, "--from"), _moment(until, "--until")

    def words(found: MembershipView) -> str:
        one = found.membership
        return f"{'group ' if is_group else ''}{name} has the {_membership(one)}{_dates(one)}, by {one.granted_by}"

    return tell(
        settings,
        lambda engine: engine.users.grant(
            name, role=role, group=group, to_group=is_group, valid_from=begins, valid_to=ends, by=by
        ),
        words,
    )


def revoke(
    settings: Settings, name: Holder, role: Role = None, group: Group = None, is_group: IsGroup = False, by: By = None
) -> int:
    """Take a role or a group away. Decisions made before stay as they are."""

    def words(found: MembershipView) -> str:
        one = found.membership
        return f"{'group ' if is_group else ''}{name} has the {_membership(one)} no more, by {one.revoked_by}"

    return tell(
        settings,
        lambda engine: engine.users.revoke(name, role=role, group=group, from_group=is_group, by=by),
        words,
    )


def history(
    settings: Settings,
    name: Annotated[str | None, arg("[NAME]", "Only changes of this user, group or tenant.")] = None,
) -> int:
    """Show every change of people, with its actor; check the hash chain, and that the tables say the same.

    Exit status 1 if the chain is broken, or a row differs.
    """

    async def every(engine: AsyncEngine) -> tuple[list[HistoryEntry], PeopleChain]:
        page = await engine.users.history(name)
        entries = page.history
        while page.next:
            page = await engine.users.history(name, after=int(page.next))
            entries += page.history
        return entries, page.chain

    entries, chain = ask(settings, every)
    if settings.json:
        answer({"history": entries, "chain": chain})
    else:
        rows = [
            {
                "seq": one.seq,
                "at": one.at,
                "change": one.event.replace("_", " "),
                "of": one.subject,
                "by": one.by + (f" (vouched by {one.vouched_by})" if one.vouched_by else ""),
                "detail": ", ".join(f"{key} {_plain(value)}" for key, value in (one.detail or {}).items()),
            }
            for one in entries
        ]
        table(rows, "nothing was ever changed")
        if chain.is_intact:
            say(f"the chain of {chain.entries} entries holds")
        else:
            say(f"the chain breaks at entry {chain.broken_at}: it was changed after it was written")
        for said in chain.differences:
            say(f"  {inert_line(said)}")
    return SUCCEEDED if chain.is_intact and not chain.differences else FAILED


def delegate(
    settings: Settings,
    delegator: Annotated[str | None, arg("[DELEGATOR]", "Whose roles count.")] = None,
    to: Annotated[str | None, arg("[DELEGATE]", "The user who decides.")] = None,
    from_: From = None,
    until: Until = None,
    open_ended: Annotated[bool, opt("--open-ended", "Without an end, until --end.")] = False,
    reason: Annotated[str, opt("--reason", "TEXT", "Why; kept on record.")] = "",
    end: Annotated[bool, opt("--end", "End the delegation instead.")] = False,
    listed: Annotated[bool, opt("--list", "List the delegations that have not ended instead.")] = False,
    by: By = None,
) -> int:
    """Let one user decide on behalf of another, for a time. Never to oneself; delegations do not chain."""
    if listed:
        if delegator is not None:
            raise InvalidInput("--list takes no names.")
        shown = ("delegator", "delegate", "valid_from", "valid_to", "granted_by", "reason")
        return tell(
            settings,
            lambda engine: engine.users.delegations(),
            lambda found: table(found.delegations, "no delegation", shown),
        )
    if delegator is None or to is None:
        raise InvalidInput("Name both: stepkeep delegate DELEGATOR DELEGATE, or give --list.")
    if end:
        return tell(
            settings,
            lambda engine: engine.users.undelegate(delegator, to, by=by),
            lambda found: f"{to} decides on behalf of {delegator} no more, by {found.delegation.revoked_by}",
        )
    begins, ends = _moment(from_, "--from"), _moment(until, "--until")
    if open_ended is (ends is not None):
        raise InvalidInput("a delegation has an end, or none on purpose: give --until TIME or --open-ended.")

    def words(found: DelegationView) -> Iterator[str]:
        yield f"{_delegation(found.delegation)}{_dates(found.delegation)}, by {found.delegation.granted_by}"
        yield f"End it: {settings.command('delegate', delegator, to, '--end')}"

    return tell(
        settings,
        lambda engine: engine.users.delegate(
            delegator, to, valid_from=begins, valid_to=ends, open_ended=open_ended, reason=reason, by=by
        ),
        words,
    )


def _moment(text: str | None, option: str) -> Any:
    return None if text is None else moment_of(text, option, is_ago=False)


def _membership(one: Membership) -> str:
    return f"role {one.role}" if one.role else f"group {one.group}"


def _delegation(one: Delegation) -> str:
    why = f" ({one.reason})" if one.reason else ""
    return f"{one.delegate} decides on behalf of {one.delegator}{why}"


def _dates(one: Membership | Delegation) -> str:
    said = f" from {one.valid_from}" if one.valid_from else ""
    said += f" until {one.valid_to}" if one.valid_to else ""
    return said + (f", revoked at {one.revoked_at} by {one.revoked_by}" if one.revoked_at else "")


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


app.command("create")(with_settings(create))
app.command("list")(with_settings(list_))
app.command("show")(with_settings(show))
app.command("grant")(with_settings(grant))
app.command("revoke")(with_settings(revoke))
app.command("disable")(with_settings(disable))
app.command("enable")(with_settings(enable))
app.command("history")(with_settings(history))
