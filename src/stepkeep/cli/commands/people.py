"""`stepkeep users`, `delegate` and `audit`: people, their roles and groups, delegations, and the records of changes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from stepkeep.cli.answering import ask, print_answer, table
from stepkeep.cli.arguments import CURSOR, By, Text, arg, moment_of, opt
from stepkeep.cli.command import Commands, CommandValues, program
from stepkeep.cli.printer import FAILED, SUCCEEDED, answer, say
from stepkeep.cli.settings import Settings
from stepkeep.edges.safe_text import inert_line
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.engine import AsyncEngine
    from stepkeep.operations.people.audit import AuditPage
    from stepkeep.operations.people.people_journal import HistoryEntry, PeopleChain
    from stepkeep.operations.people.principals import (
        Delegation,
        DelegationView,
        DisabledUser,
        Membership,
        MembershipView,
        User,
        UserDetailsView,
        UserView,
    )

users = Commands("users", "Users and services, their roles and groups.")

NAME = arg("NAME", "The name of the user or service.")
HOLDER = arg("NAME", "The user or service, or with --is-group the group.")
IS_GROUP = opt("--is-group", "NAME is a group: its members share the role.", typed_as="is_group")
later = partial(moment_of, is_ago=False)
FROM = opt("--from", "TIME", "From when on it counts; at once by default.", typed_as="from_", reads=later)
UNTIL = opt("--until", "TIME", "Until when it counts.", typed_as="until", reads=later)
HELD: dict[str, Any] = {
    "name": HOLDER,
    "role": opt("--role", "ROLE", "The role."),
    "group": opt("--group", "GROUP", "The group."),
}


@users.operation(
    "create",
    "users.create",
    creates=True,
    name=NAME,
    kind=opt(
        "--service",
        "A program, not a person.",
        kind=bool,
        by_default=False,
        typed_as="service",
        reads=lambda is_service, _: "service" if is_service else "user",
    ),
    display=opt("--display", "TEXT", "The name to show to people."),
)
def create(found: UserView, asked: CommandValues) -> Iterator[str]:
    """Register a user or a service. A name that looks like a registered one is refused."""
    yield f"{found.user.kind} {asked['name']} is registered, by {found.user.created_by}"
    yield f"Give roles: {asked.command('users', 'grant', asked['name'], '--role', 'ROLE')}"


@users.command("list")
def listed(settings: Settings) -> int:
    """List users and services."""

    async def every(engine: AsyncEngine) -> dict[str, list[User]]:
        page = await engine.users.list()
        users = page.users
        while page.next:
            page = await engine.users.list(after=page.next)
            users += page.users
        return {"users": users}

    shown = "name kind display created_at created_by disabled_at"
    return print_answer(settings, every, lambda found: table(found["users"], "no user is registered", shown))


@users.operation("show", "users.show", name=NAME)
def show(found: UserDetailsView, asked: CommandValues) -> Iterator[str]:
    """Show a user: roles and groups now, memberships, delegations, keys."""
    user = found.user
    display = f" ({user.display})" if user.display else ""
    ended = f"; disabled at {user.disabled_at} by {user.disabled_by}" if user.disabled_at else ""
    yield f"{user.kind} {asked['name']}{display}, registered at {user.created_at} by {user.created_by}{ended}"
    yield f"roles: {', '.join(user.roles) or 'none'}"
    yield f"groups: {', '.join(user.groups) or 'none'}"
    yield f"keys: {', '.join(user.keys) or 'none'}"
    for one in user.memberships:
        yield f"  {_membership(one)}, given at {one.granted_at} by {one.granted_by}{_dates(one)}"
    for two in user.delegations:
        yield f"  {_delegation(two)}, since {two.granted_at}{_dates(two)}"


@users.operation("grant", "users.grant", **HELD, to_group=IS_GROUP, valid_from=FROM, valid_to=UNTIL)
def grant(found: MembershipView, asked: CommandValues) -> str:
    """Give a user a role or a group, within dates if given; or give a group a role."""
    one = found.membership
    who = f"{'group ' if asked['to_group'] else ''}{asked['name']}"
    return f"{who} has the {_membership(one)}{_dates(one)}, by {one.granted_by}"


@users.operation("revoke", "users.revoke", **HELD, from_group=IS_GROUP)
def revoke(found: MembershipView, asked: CommandValues) -> str:
    """Take a role or a group away. Decisions made before stay as they are."""
    one = found.membership
    who = f"{'group ' if asked['from_group'] else ''}{asked['name']}"
    return f"{who} has the {_membership(one)} no more, by {one.revoked_by}"


@users.operation("disable", "users.disable", name=NAME)
def disable(found: DisabledUser, asked: CommandValues) -> Iterator[str]:
    """Refuse a user in every decision from now on, and revoke the user's keys."""
    keys = len(found.revoked_keys)
    yield f"{asked['name']} is disabled by {found.user.disabled_by}; {keys} key{'' if keys == 1 else 's'} revoked"
    yield f"Undo it: {asked.command('users', 'enable', asked['name'])}; keys are made anew."


@users.operation("enable", "users.enable", name=NAME)
def enable(_: UserView, asked: CommandValues) -> str:
    """Let a disabled user act again. Revoked keys stay revoked."""
    key = asked.command("keys", "create", asked["name"], "--scope", "decide")
    return f"{asked['name']} may act again; make a key: {key}"


@users.command("history")
def history(
    settings: Settings,
    name: Annotated[Text, arg("[NAME]", "Only changes of this user, group or tenant.")] = None,
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
        table(
            entries,
            "nothing was ever changed",
            "seq at change of by detail",
            change=lambda one: one.event.replace("_", " "),
            of=lambda one: one.subject,
            by=lambda one: one.by + (f" (vouched by {one.vouched_by})" if one.vouched_by else ""),
            detail=lambda one: ", ".join(f"{key} {_plain(value)}" for key, value in (one.detail or {}).items()),
        )
        if chain.is_intact:
            say(f"the chain of {chain.entries} entries holds")
        else:
            say(f"the chain breaks at entry {chain.broken_at}: it was changed after it was written")
        for said in chain.differences:
            say(f"  {inert_line(said)}")
    return SUCCEEDED if chain.is_intact and not chain.differences else FAILED


@program.command("delegate")
def delegate(
    settings: Settings,
    delegator: Annotated[Text, arg("[DELEGATOR]", "Whose roles count.")] = None,
    to: Annotated[Text, arg("[DELEGATE]", "The user who decides.")] = None,
    from_: Annotated[str | None, FROM] = None,
    until: Annotated[str | None, UNTIL] = None,
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
        shown = "delegator delegate valid_from valid_to granted_by reason"
        return print_answer(
            settings,
            lambda engine: engine.users.delegations(),
            lambda found: table(found.delegations, "no delegation", shown),
        )
    if delegator is None or to is None:
        raise InvalidInput("Name both: stepkeep delegate DELEGATOR DELEGATE, or give --list.")
    if end:
        return print_answer(
            settings,
            lambda engine: engine.users.undelegate(delegator, to, by=by),
            lambda found: f"{to} decides on behalf of {delegator} no more, by {found.delegation.revoked_by}",
        )
    given: dict[str, Any] = {"open_ended": open_ended, "reason": reason, "by": by}
    given["valid_from"] = None if from_ is None else later(from_, "--from")
    given["valid_to"] = None if until is None else later(until, "--until")
    if open_ended is (until is not None):
        raise InvalidInput("a delegation has an end, or none on purpose: give --until TIME or --open-ended.")

    def words(found: DelegationView) -> Iterator[str]:
        yield f"{_delegation(found.delegation)}{_dates(found.delegation)}, by {found.delegation.granted_by}"
        yield f"End it: {settings.command('delegate', delegator, to, '--end')}"

    return print_answer(settings, lambda engine: engine.users.delegate(delegator, to, **given), words)


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


FILTERS = {
    "target": arg("[TARGET]", "Only about this run, user, key or other thing."),
    "actor": opt("--actor", "NAME", "Only what this person asked for."),
    "operation": opt("--operation", "NAME", "Only this one: approve."),
    "outcome": opt("--outcome", "OUTCOME", "Only done, refused or failed ones."),
    "key": opt("--api-key", "ID", "Only with the API key that has this id."),
}


@program.operation(
    "audit",
    "audit.list",
    fails=lambda found: not found.chain.is_intact,
    **FILTERS,
    since=opt("--since", "TIME", "Since: 2026-11-03T10:15Z, or 2h ago.", reads=moment_of),
    until=opt("--until", "TIME", "Before then.", reads=moment_of),
    cursor=CURSOR,
    limit=opt("--limit", "How many at most.", by_default=50),
)
def audit(found: AuditPage, asked: CommandValues) -> None:
    """Search the audit log: operations with API keys and through the service, refusals, and changes of people."""
    table(
        found.audit,
        "no entry of the audit log fits",
        "at actor key operation target outcome from",
        actor=lambda one: one.actor + ("" if one.vouched_by is None else f" (by {one.vouched_by})"),
        outcome=lambda one: one.outcome if one.code is None else f"{one.outcome}: {one.code}",
        **{"from": lambda one: one.address},
    )
    if found.next:
        target, *named = [(name, asked[name]) for name in FILTERS if asked[name] is not None or name == "target"]
        options = [f"--{'api-key' if name == 'key' else name}={value}" for name, value in named]
        about = [] if target[1] is None else [target[1]]
        say(f"there are more: {asked.command('audit', *about, *options, '--cursor', found.next)}")
    if not found.chain.is_intact:
        from stepkeep.operations.people.audit import told_of_chain

        say(f"the audit log was changed by hand: {told_of_chain(found.chain)}")
