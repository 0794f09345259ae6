"""`stepkeep profile`: services and databases by name, in a file of the user. It opens none of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from msgspec.structs import replace

from stepkeep.cli.answering import print_value, read_key, service_address, table
from stepkeep.cli.arguments import Text, arg, opt
from stepkeep.cli.command import Commands
from stepkeep.cli.profiles import Profile, complete_profile, profiles_file, read_profiles, write_profiles
from stepkeep.cli.settings import CommandNeeds, Settings
from stepkeep.edges.redaction import database_url
from stepkeep.kernel.errors import InvalidInput

profile = Commands("profile", "Services and databases by name.")

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", re.ASCII)
Name = Annotated[str, arg("NAME", "The profile.", autocompletion=complete_profile)]
Chosen = Annotated[Text, arg("[NAME]", "The profile; the one in use without it.", autocompletion=complete_profile)]


@profile.command("add", CommandNeeds.NOTHING)
def add(
    settings: Settings,
    name: Annotated[str, arg("NAME", "Its name.")],
    store_key: Annotated[
        bool, opt("--store-key", "Keep the key itself, from --key-file (- reads a pipe) or STEPKEEP_KEY, in the file.")
    ] = False,
    use: Annotated[bool, opt("--use", "Use it from now on.")] = False,
    replaces: Annotated[bool, opt("--replace", "Replace a profile of this name.")] = False,
) -> int:
    """Add a service (--server URL) or a database (--db URL), with the key for it: --key-file FILE, or --store-key."""
    if NAME.fullmatch(name) is None:
        raise InvalidInput("the name of a profile has 1 to 64 letters, digits, dots, dashes and underscores.")
    if not settings.typed & {"server", "db"}:
        raise InvalidInput("Say what the profile stands for: --server URL, or --db URL.")
    known = read_profiles()
    if name in known.profiles and not replaces:
        raise InvalidInput(f"there is a profile {name}. Give --replace to replace it.")
    made = Profile(
        server=None if settings.server is None else service_address(settings.server),
        db=_absolute(settings.db) if settings.server is None else None,
        tenant=settings.tenant,
        key_file=str(Path(settings.key_file).absolute()) if settings.key_file and not store_key else None,
        key=_stored_key(settings) if store_key else None,
    )
    for text in (made.server, made.db, made.tenant, made.key_file):
        if text is not None and not text.isprintable():
            raise InvalidInput("a profile has no control characters.")
    write_profiles(replace(known, use=name if use else known.use, profiles={**known.profiles, name: made}))
    return _print_profile(settings, replace(made, name=name), is_used=use or known.use == name)


@profile.command("list", CommandNeeds.NOTHING)
def list_(settings: Settings) -> int:
    """List the profiles."""
    found = read_profiles()
    rows = [_view(found.named(name), is_used=name == found.use) for name in sorted(found.profiles)]
    if not settings.json:
        shown = [
            {
                "": "*" if one["in_use"] else "",
                "profile": one["profile"],
                "place": _address_of(one),
                "key": one["key"] or "",
            }
            for one in rows
        ]
        table(shown, f"no profile is in {profiles_file()}: add one with stepkeep profile add NAME --server URL")
    return print_value(settings, {"profiles": rows, "file": str(profiles_file())}, None)


@profile.command("show", CommandNeeds.NOTHING)
def show(settings: Settings, name: Chosen = None) -> int:
    """Show a profile. Of its key it says where it is, and never what it is."""
    found = read_profiles()
    if name is None and found.use is None:
        raise InvalidInput("no profile is in use. Name one; `stepkeep profile list` has them.")
    chosen = found.named(name or str(found.use))
    return _print_profile(settings, chosen, is_used=chosen.name == found.use)


@profile.command("use", CommandNeeds.NOTHING)
def use(
    settings: Settings,
    name: Chosen = None,
    none: Annotated[bool, opt("--none", "Use no profile from now on.")] = False,
) -> int:
    """Use a profile from now on, wherever neither an option nor a variable says where runs are."""
    if (name is None) is not none:
        raise InvalidInput("Name the profile, or give --none: one of the two.")
    found = read_profiles()
    chosen = None if name is None else found.named(name)
    write_profiles(replace(found, use=name))
    if chosen is not None:
        return _print_profile(settings, chosen, is_used=True)
    return print_value(settings, {"profile": None}, "no profile is in use")


@profile.command("remove", CommandNeeds.NOTHING)
def remove(settings: Settings, name: Name) -> int:
    """Remove a profile, with the key that it holds. A file of the key stays."""
    found = read_profiles()
    gone = found.named(name)
    left = {other: one for other, one in found.profiles.items() if other != name}
    write_profiles(replace(found, use=None if found.use == name else found.use, profiles=left))
    said = f"profile {name} is removed" + ("; no profile is in use now" if found.use == name else "")
    return print_value(settings, {"removed": _view(gone, is_used=False)}, said)


def _stored_key(settings: Settings) -> str:
    from stepkeep.operations.access import parse_key

    key = read_key(settings)
    if key is None:
        raise InvalidInput("--store-key needs the key: --key-file FILE, --key-file - for a pipe, or STEPKEEP_KEY.")
    parse_key(key)
    return key


def _absolute(url: str) -> str:
    """The same database from every directory."""
    path = url.removeprefix("sqlite:///")
    return url if path == url or not path or path.startswith(":") else f"sqlite:///{Path(path).absolute()}"


def _print_profile(settings: Settings, one: Profile, *, is_used: bool) -> int:
    view = _view(one, is_used=is_used)
    key = f"its key is {view['key']}" if view["key"] else "it has no key: --key-file or STEPKEEP_KEY give one"
    use = f"Use it: stepkeep profile use {one.name}, or --profile {one.name} with any command"
    if is_used:
        use = "it is in use where neither an option nor a variable says otherwise"
    said = (f"profile {one.name} is {_address_of(view)}; {key}", use)
    return print_value(settings, {"profile": view, "file": str(profiles_file())}, said)


def _view(one: Profile, *, is_used: bool) -> Mapping[str, Any]:
    kept = None if one.key is None else f"in {profiles_file()}"
    return {
        "profile": one.name,
        "server": one.server,
        "db": None if one.db is None else database_url(one.db),
        "tenant": None if one.server is not None else one.tenant,
        "key": kept or (None if one.key_file is None else f"in {one.key_file}"),
        "in_use": is_used,
    }


def _address_of(view: Mapping[str, Any]) -> str:
    if view["server"] is not None:
        return str(view["server"])
    return str(view["db"]) + ("" if view["tenant"] == "default" else f", tenant {view['tenant']}")
