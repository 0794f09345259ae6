"""`stepkeep tenants`: settings of tenants. A tenant needs none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from stepkeep.cli.arguments import By, arg, opt
from stepkeep.cli.asking import table, tell
from stepkeep.cli.commands.keys import MaxRequests, MaxRuns
from stepkeep.cli.settings import Settings, with_settings
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.engine import AsyncEngine
    from stepkeep.operations.principals import TenantView
    from stepkeep.operations.quotas import TenantQuotas
    from stepkeep.operations.run_webhooks import TenantSigning

app = typer.Typer(help="Tenants and their settings.", no_args_is_help=True)

Name = Annotated[str, arg("NAME", "The tenant.")]
Vouching = Annotated[
    str, opt("--vouching", "WORD", "allowed or refused: whether programs without a key may name persons.")
]


def create(settings: Settings, name: Name, vouching: Vouching = "allowed", by: By = None) -> int:
    """Give a tenant settings. It works without any, too."""
    return tell(
        settings,
        lambda engine: engine.tenants.create(name, vouching=cast("Any", vouching), by=by),
        lambda found: (
            f"tenant {name} is created by {found.tenant.created_by}; vouching is {found.tenant.vouching}",
            f"Register people: {settings._replace(tenant=name).command('users', 'create', 'NAME')}",
        ),
        creates=True,
    )


def set_(settings: Settings, name: Name, vouching: Vouching, by: By = None) -> int:
    """Change the settings of a tenant. With vouching refused, everything but reading and working needs a key."""

    def words(found: TenantView) -> Iterator[str]:
        yield f"vouching in tenant {name} is {found.tenant.vouching}"
        if found.tenant.vouching == "refused":
            yield "From now on every start, decision and change there needs a key: --key-file FILE or STEPKEEP_KEY."

    return tell(settings, lambda engine: engine.tenants.set_vouching(name, cast("Any", vouching), by=by), words)


def quotas(
    settings: Settings,
    name: Name,
    max_concurrent_runs: MaxRuns = None,
    max_requests_per_min: MaxRequests = None,
    limit: Annotated[
        list[str] | None, opt("--limit", "NAME=N", "Another quota, such as max_triggers=50. Repeatable.")
    ] = None,
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

    def words(found: TenantQuotas) -> Iterator[str]:
        from stepkeep.operations.quotas import DEFAULTS

        for quota, value in found.quotas.items():
            default = DEFAULTS[quota]
            unset = "no limit" if default is None else f"{default} (the default)"
            yield f"{quota}: {unset if value is None else value}"
        if named or none:
            yield "It counts within a second, for runs and requests of API keys."

    return tell(settings, change, words, creates=True)


def _limit(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if not number.isascii() or not number.isdigit() or len(number) > 18:
        raise InvalidInput(f"--limit {text!a} is not NAME=N with a whole number N.")
    return name, int(number)


def signing(
    settings: Settings,
    name: Name,
    secret: Annotated[list[str] | None, opt("--secret", "SECRET", "The name of a secret, repeated.")] = None,
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
    return tell(settings, change, lambda found: f"{said}{', '.join(found.secrets) or 'none'}", creates=True)


def list_(settings: Settings) -> int:
    """List the tenants that have settings."""
    nothing = "no tenant has settings: all allow vouching"
    return tell(settings, lambda engine: engine.tenants.list(), lambda found: table(found.tenants, nothing))


app.command("create")(with_settings(create))
app.command("set")(with_settings(set_))
app.command("quotas")(with_settings(quotas))
app.command("signing")(with_settings(signing))
app.command("list")(with_settings(list_))
