"""`stepkeep keys` and `tenants`: API keys, and settings of tenants. A key is shown once, or written to a file."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from stepkeep.cli.answering import ask, print_answer, print_value, table
from stepkeep.cli.arguments import By, Text, Texts, arg, moment_of, opt
from stepkeep.cli.command import Commands, CommandValues
from stepkeep.cli.settings import Settings
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.engine import AsyncEngine
    from stepkeep.operations.delivery.run_webhooks import TenantSigning
    from stepkeep.operations.people.keys import Key, KeyList, MadeKey, RevokedKey
    from stepkeep.operations.people.principals import TenantList, TenantView
    from stepkeep.operations.people.quotas import TenantQuotas

keys = Commands("keys", "API keys, which say who acts.")

KEY = arg("KEY", "The id of the key.", typed_as="key")
MaxRuns = Annotated[
    int | None,
    opt(
        "--max-concurrent-runs", "N", "How many unfinished runs; no limit.", bounds_of="keys.create max_concurrent_runs"
    ),
]
MaxRequests = Annotated[
    int | None,
    opt(
        "--max-requests-per-min", "N", "How many HTTP requests; no limit.", bounds_of="keys.create max_requests_per_min"
    ),
]
Output = Annotated[
    Path | None, opt("--output", "-o", "FILE", "Write the key to this new file, readable by its owner alone.")
]


@keys.command("create")
def create_key(
    settings: Settings,
    owner: Annotated[str, arg("OWNER", "The user or service that acts.")],
    scope: Annotated[
        list[str],
        opt("--scope", "SCOPE", "What for, repeated: read, start, decide, complete, operate, work, admin, vouch."),
    ],
    expires: Annotated[Text, opt("--expires", "TIME|DURATION", "Its end, such as 90d; none by default.")] = None,
    max_concurrent_runs: MaxRuns = None,
    max_requests_per_min: MaxRequests = None,
    queue: Annotated[
        Texts, opt("--queue", "NAME", 'Work on this queue alone, repeated; the default one is "".')
    ] = None,
    handler: Annotated[Texts, opt("--handler", "NAME", "Work on steps of this handler alone, repeated.")] = None,
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


@keys.operation("list", "keys.list", owner=opt("--owner", "NAME", "Only keys of this owner."))
def list_keys(found: KeyList, _: CommandValues) -> None:
    """List keys, without their secrets."""
    shown = ("id", "owner", "state", "scopes", "created_by", "expires_at")
    rows = [{**{name: key[name] for name in shown}, "scopes": " ".join(key.scopes)} for key in found.keys]
    # A column for limits only where a key has some.
    if any(map(_limits, found.keys)):
        rows = [{**row, "works on": _limits(key)} for row, key in zip(rows, found.keys, strict=True)]
    table(rows, "no key was ever made")


@keys.command("rotate")
def rotate(
    settings: Settings,
    key: Annotated[str, KEY],
    overlap: Annotated[str, opt("--overlap", "DURATION", "How long the old key goes on to work.")] = "1d",
    output: Output = None,
    by: By = None,
) -> int:
    """Make a new key with the same owner and scopes. The old one ends after the overlap."""
    return _made(settings, lambda engine: engine.keys.rotate(key, overlap=overlap, by=by), output)


@keys.operation("revoke", "keys.revoke", key_id=KEY)
def revoke(found: RevokedKey, asked: CommandValues) -> Iterator[str]:
    """End a key now, with the keys that replaced it and their sessions: every decision refuses them from then on."""
    yield f"key {asked['key_id']} of {found.key.owner} is revoked by {found.key.revoked_by}"
    if found.successors or found.sessions:
        yield f"with it ended: keys that replaced it: {len(found.successors)}, sessions: {found.sessions}"


def _limits(key: Key) -> str:
    """The queues and handlers that a key is limited to, in words."""
    from stepkeep.kernel.people.authority import WorkLimits

    queues, handlers = (None if one is None else tuple(one) for one in (key.queues, key.handlers))
    return str(WorkLimits(queues=queues, handlers=handlers))


def _end(text: str) -> Mapping[str, object]:
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
    view = found.as_json()
    if output is not None:
        view = {**{name: one for name, one in view.items() if name != "secret"}, "file": str(output)}
    return print_value(settings, view, _key_words(found, output))


def _key_words(found: MadeKey, output: Path | None) -> Iterator[str]:
    key = found.key
    ends = f"; it ends at {key.expires_at}" if key.expires_at else ""
    only = f" (only {_limits(key)})" if _limits(key) else ""
    yield f"key {key.id} of {key.owner} for {', '.join(key.scopes)}{only}{ends}"
    if output is None:
        yield found.secret
        yield "This is the only time it is shown. Use it in STEPKEEP_KEY, or in a file: --key-file FILE."
    else:
        yield f"It is in {output}. Use it: --key-file {output}, or STEPKEEP_KEY_FILE."
    if found.replaced:
        yield f"key {found.replaced.id} works until {found.replaced.expires_at}"


tenants = Commands("tenants", "Tenants and their settings.")
NAME = arg("NAME", "The tenant.")
VOUCHING = opt("--vouching", "WORD", "allowed or refused: whether programs without a key may name persons.")


@tenants.operation("create", "tenants.create", creates=True, name=NAME, vouching=VOUCHING)
def create_tenant(found: TenantView, asked: CommandValues) -> Iterator[str]:
    """Give a tenant settings. It works without any, too."""
    name = asked["name"]
    yield f"tenant {name} is created by {found.tenant.created_by}; vouching is {found.tenant.vouching}"
    yield f"Register people: {asked.settings._replace(tenant=name).command('users', 'create', 'NAME')}"


@tenants.operation("set", "tenants.set_vouching", name=NAME, vouching=VOUCHING)
def set_vouching(found: TenantView, asked: CommandValues) -> Iterator[str]:
    """Change the settings of a tenant. With vouching refused, everything but reading and working needs a key."""
    yield f"vouching in tenant {asked['name']} is {found.tenant.vouching}"
    if found.tenant.vouching == "refused":
        yield "From now on every start, decision and change there needs a key: --key-file FILE or STEPKEEP_KEY."


@tenants.command("quotas")
def quotas(
    settings: Settings,
    name: Annotated[str, NAME],
    max_concurrent_runs: MaxRuns = None,
    max_requests_per_min: MaxRequests = None,
    limit: Annotated[Texts, opt("--limit", "NAME=N", "Another quota, such as max_triggers=50. Repeatable.")] = None,
    none: Annotated[bool, opt("--none", "Take all limits away; those with a default have it again.")] = False,
    by: By = None,
) -> int:
    """Show or change what all API keys of a tenant may use together. What is not named stays as it is."""
    given = {"max_concurrent_runs": max_concurrent_runs, "max_requests_per_min": max_requests_per_min}
    named = {key: value for key, value in given.items() if value is not None} | dict(map(_limit, limit or ()))
    if named and none:
        raise InvalidInput("--none takes all limits away: give it alone.")

    if named or none:
        settings.require_database("tenants quotas, where it changes them,")

    async def change(engine: AsyncEngine) -> TenantQuotas:
        known = await engine.tenants.quotas(name)
        if not named and not none:
            return known
        kept = {} if none else known.quotas.as_json()
        return await engine.tenants.set_quotas(name, **{**kept, **named}, by=by)

    said = ("It counts within a second, for runs and requests of API keys.",) if named or none else ()
    return print_answer(settings, change, lambda found: (*_quotas(found), *said), creates=True)


def _quotas(found: TenantQuotas) -> Iterator[str]:
    from stepkeep.operations.people.quotas import DEFAULTS

    for quota, value in found.quotas.items():
        default = DEFAULTS[quota]
        unset = "no limit" if default is None else f"{default} (the default)"
        yield f"{quota}: {unset if value is None else value}"


def _limit(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if not number.isascii() or not number.isdigit() or len(number) > 18:
        raise InvalidInput(f"--limit {text!a} is not NAME=N with a whole number N.")
    return name, int(number)


@tenants.command("signing")
def signing(
    settings: Settings,
    name: Annotated[str, NAME],
    secret: Annotated[Texts, opt("--secret", "SECRET", "The name of a secret, repeated.")] = None,
    none: Annotated[bool, opt("--none", "Release no secret.")] = False,
    by: By = None,
) -> int:
    """Show or change the secrets of the workers that starts may name to sign the webhooks of their runs."""
    if secret and none:
        raise InvalidInput("--none releases no secret: give it alone.")

    async def change(engine: AsyncEngine) -> TenantSigning:
        if not secret and not none:
            return await engine.tenants.signing(name)
        return await engine.tenants.set_signing(name, secret or (), by=by)

    said = "released for signing: "
    return print_answer(settings, change, lambda found: f"{said}{', '.join(found.secrets) or 'none'}", creates=True)


@tenants.operation("list", "tenants.list")
def list_tenants(found: TenantList, _: CommandValues) -> None:
    """List the tenants that have settings."""
    table(found.tenants, "no tenant has settings: all allow vouching")
