"""`stepkeep users` and `stepkeep delegate`: people, their roles and groups, delegations, and the record of changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from stepkeep.cli.arguments import By, moment_of
from stepkeep.cli.printer import answer, console, say
from stepkeep.cli.session import open_engine
from stepkeep.cli.settings import Settings, with_settings
from stepkeep.cli.status import FAILED, SUCCEEDED
from stepkeep.edges.safe_text import inert_line
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.engine import AsyncEngine

app = typer.Typer(help="Users and services, their roles and groups.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the user or service.", show_default=False)]
Holder = Annotated[
    str, typer.Argument(metavar="NAME", help="The user or service, or with --is-group the group.", show_default=False)
]
Role = Annotated[str | None, typer.Option("--role", metavar="ROLE", help="The role.")]
Group = Annotated[str | None, typer.Option("--group", metavar="GROUP", help="The group.")]
IsGroup = Annotated[bool, typer.Option("--is-group", help="NAME is a group: its members share the role.")]
From = Annotated[str | None, typer.Option("--from", metavar="TIME", help="From when on it counts; at once by default.")]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Until when it counts.")]

T = TypeVar("T")


def ask(settings: Settings, work: Callable[[AsyncEngine], Awaitable[T]], *, creates: bool = False) -> T:
    """Do this with the engine of the settings."""

    async def go() -> T:
        async with open_engine(settings, creates=creates) as engine:
            return await work(engine)

    return asyncio.run(go())


def table(rows: list[dict[str, Any]], nothing: str) -> None:
    """Print rows as a table, or say that there are none."""
    if not rows:
        say(nothing)
        return
    from stepkeep.cli.render.tables import plain_table

    console().print(plain_table(rows))


def create(
    settings: Settings,
    name: Name,
    service: Annotated[bool, typer.Option("--service", help="A program, not a person.")] = False,
    display: Annotated[str, typer.Option("--display", metavar="TEXT", help="The name to show to people.")] = "",
    by: By = None,
) -> int:
    """Register a user or a service. A name that looks like a registered one is refused."""
    kind = "service" if service else "user"
    found = ask(settings, lambda engine: engine.users.create(name, kind=kind, display=display, by=by), creates=True)
    if settings.json:
        answer(found)
    else:
        say(f"{found['user']['kind']} {name} is registered, by {found['user']['created_by']}")
        say(f"Give roles: {settings.command('users', 'grant', name, '--role', 'ROLE')}")
    return SUCCEEDED


def list_(settings: Settings) -> int:
    """List users and services."""

    async def every(engine: AsyncEngine) -> dict[str, Any]:
        users: list[dict[str, Any]] = []
        while True:
            page = await engine.users.list(after=users[-1]["name"] if users else "")
            users += page["users"]
            if page["is_complete"]:
                return {"users": users}

    found = ask(settings, every)
    if settings.json:
        answer(found)
    else:
        shown = ("name", "kind", "display", "created_at", "created_by", "disabled_at")
        table([{name: user[name] for name in shown} for user in found["users"]], "no user is registered")
    return SUCCEEDED


def show(settings: Settings, name: Name) -> int:
    """Show a user: roles and groups now, memberships, delegations, keys."""
    found = ask(settings, lambda engine: engine.users.show(name))
    if settings.json:
        answer(found)
        return SUCCEEDED
    user = found["user"]
    display = f" ({user['display']})" if user["display"] else ""
    ended = f"; disabled at {user['disabled_at']} by {user['disabled_by']}" if user["disabled_at"] else ""
    say(f"{user['kind']} {name}{display}, registered at {user['created_at']} by {user['created_by']}{ended}")
    say(f"roles: {', '.join(user['roles']) or 'none'}")
    say(f"groups: {', '.join(user['groups']) or 'none'}")
    say(f"keys: {', '.join(user['keys']) or 'none'}")
    for one in user["memberships"]:
        say(f"  {_membership(one)}, given at {one['granted_at']} by {one['granted_by']}{_dates(one)}")
    for one in user["delegations"]:
        say(f"  {_delegation(one)}, since {one['granted_at']}{_dates(one)}")
    return SUCCEEDED


def disable(settings: Settings, name: Name, by: By = None) -> int:
    """Refuse a user in every decision from now on, and revoke the user's keys."""
    found = ask(settings, lambda engine: engine.users.disable(name, by=by))
    if settings.json:
        answer(found)
    else:
        keys = len(found["revoked_keys"])
        say(f"{name} is disabled by {found['user']['disabled_by']}; {keys} key{'' if keys == 1 else 's'} revoked")
        say(f"Undo it: {settings.command('users', 'enable', name)}; keys are made anew.")
    return SUCCEEDED


def enable(settings: Settings, name: Name, by: By = None) -> int:
    """Let a disabled user act again. Revoked keys stay revoked."""
    found = ask(settings, lambda engine: engine.users.enable(name, by=by))
    if settings.json:
        answer(found)
    else:
        say(f"{name} may act again; make a key: {settings.command('keys', 'create', name, '--scope', 'decide')}")
    return SUCCEEDED


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
    found = ask(
        settings,
        lambda engine: engine.users.grant(
            name, role=role, group=group, to_group=is_group, valid_from=begins, valid_to=ends, by=by
        ),
    )
    if settings.json:
        answer(found)
    else:
        one = found["membership"]
        say(f"{'group ' if is_group else ''}{name} has the {_membership(one)}{_dates(one)}, by {one['granted_by']}")
    return SUCCEEDED


def revoke(
    settings: Settings, name: Holder, role: Role = None, group: Group = None, is_group: IsGroup = False, by: By = None
) -> int:
    """Take a role or a group away. Decisions made before stay as they are."""
    found = ask(settings, lambda engine: engine.users.revoke(name, role=role, group=group, from_group=is_group, by=by))
    if settings.json:
        answer(found)
    else:
        one = found["membership"]
        say(f"{'group ' if is_group else ''}{name} has the {_membership(one)} no more, by {one['revoked_by']}")
    return SUCCEEDED


def history(
    settings: Settings,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Only changes of this user, group or tenant.")
    ] = None,
) -> int:
    """Show every change of people, with its actor; check the hash chain, and that the tables say the same.

    Exit status 1 if the chain is broken, or a row differs.
    """

    async def every(engine: AsyncEngine) -> dict[str, Any]:
        entries: list[dict[str, Any]] = []
        while True:
            page = await engine.users.history(name, after=entries[-1]["seq"] if entries else 0)
            entries += page["history"]
            if len(page["history"]) < 1000:
                return {"history": entries, "chain": page["chain"]}

    found = ask(settings, every)
    chain = found["chain"]
    if settings.json:
        answer(found)
    else:
        rows = [
            {
                "seq": one["seq"],
                "at": one["at"],
                "change": one["event"].replace("_", " "),
                "of": one["subject"],
                "by": one["by"] + (f" (vouched by {one['vouched_by']})" if one.get("vouched_by") else ""),
                "detail": ", ".join(f"{key} {_plain(value)}" for key, value in one.get("detail", {}).items()),
            }
            for one in found["history"]
        ]
        table(rows, "nothing was ever changed")
        if chain["is_intact"]:
            say(f"the chain of {chain['entries']} entries holds")
        else:
            say(f"the chain breaks at entry {chain['broken_at']}: it was changed after it was written")
        for said in chain["differences"]:
            say(f"  {inert_line(said)}")
    return SUCCEEDED if chain["is_intact"] and not chain["differences"] else FAILED


def delegate(
    settings: Settings,
    delegator: Annotated[str | None, typer.Argument(metavar="[DELEGATOR]", help="Whose roles count.")] = None,
    to: Annotated[str | None, typer.Argument(metavar="[DELEGATE]", help="The user who decides.")] = None,
    from_: From = None,
    until: Until = None,
    open_ended: Annotated[bool, typer.Option("--open-ended", help="Without an end, until --end.")] = False,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept on record.")] = "",
    end: Annotated[bool, typer.Option("--end", help="End the delegation instead.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the delegations that have not ended instead.")] = False,
    by: By = None,
) -> int:
    """Let one user decide on behalf of another, for a time. Never to oneself; delegations do not chain."""
    if listed:
        if delegator is not None:
            raise InvalidInput("--list takes no names.")
        found = ask(settings, lambda engine: engine.users.delegations())
        if settings.json:
            answer(found)
        else:
            shown = ("delegator", "delegate", "valid_from", "valid_to", "granted_by", "reason")
            table([{name: one[name] for name in shown} for one in found["delegations"]], "no delegation")
        return SUCCEEDED
    if delegator is None or to is None:
        raise InvalidInput("Name both: stepkeep delegate DELEGATOR DELEGATE, or give --list.")
    if end:
        found = ask(settings, lambda engine: engine.users.undelegate(delegator, to, by=by))
    else:
        begins, ends = _moment(from_, "--from"), _moment(until, "--until")
        if open_ended is (ends is not None):
            raise InvalidInput("a delegation has an end, or none on purpose: give --until TIME or --open-ended.")
        found = ask(
            settings,
            lambda engine: engine.users.delegate(
                delegator, to, valid_from=begins, valid_to=ends, open_ended=open_ended, reason=reason, by=by
            ),
        )
    if settings.json:
        answer(found)
        return SUCCEEDED
    one = found["delegation"]
    if end:
        say(f"{to} decides on behalf of {delegator} no more, by {one['revoked_by']}")
    else:
        say(f"{_delegation(one)}{_dates(one)}, by {one['granted_by']}")
        say(f"End it: {settings.command('delegate', delegator, to, '--end')}")
    return SUCCEEDED


def _moment(text: str | None, option: str) -> Any:
    return None if text is None else moment_of(text, option, is_ago=False)


def _membership(one: Mapping[str, Any]) -> str:
    return f"role {one['role']}" if "role" in one else f"group {one['group']}"


def _delegation(one: Mapping[str, Any]) -> str:
    why = f" ({one['reason']})" if one["reason"] else ""
    return f"{one['delegate']} decides on behalf of {one['delegator']}{why}"


def _dates(one: Mapping[str, Any]) -> str:
    said = f" from {one['valid_from']}" if one["valid_from"] else ""
    said += f" until {one['valid_to']}" if one["valid_to"] else ""
    return said + (f", revoked at {one['revoked_at']} by {one['revoked_by']}" if one["revoked_at"] else "")


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
