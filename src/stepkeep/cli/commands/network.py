"""`stepkeep network`: the internal hosts that HTTP steps of the tenant may reach."""

from __future__ import annotations

from typing import Annotated

import typer

from stepkeep.cli.arguments import By
from stepkeep.cli.commands.users import ask, table
from stepkeep.cli.printer import answer, say
from stepkeep.cli.settings import Settings, with_settings
from stepkeep.cli.status import SUCCEEDED

app = typer.Typer(help="What HTTP steps may reach on the internal network.", no_args_is_help=True)

Host = Annotated[
    str,
    typer.Argument(metavar="ADDRESS", help="As in search.internal:9200 or 10.0.0.0/8.", show_default=False),
]


def allow(settings: Settings, host: Host, by: By = None) -> int:
    """Let HTTP steps of the tenant reach a host, an address or a network, although it is internal."""
    found = ask(settings, lambda engine: engine.network.allow(host, by=by), creates=True)
    if settings.json:
        answer(found)
    else:
        say(f"HTTP steps of tenant {settings.tenant} may reach {host}; the next attempt of each uses it")
        say(f"Take it back: {settings.command('network', 'remove', host)}")
    return SUCCEEDED


def remove(settings: Settings, host: Host, by: By = None) -> int:
    """Remove an entry of the allow list."""
    found = ask(settings, lambda engine: engine.network.remove(host, by=by))
    if settings.json:
        answer(found)
    else:
        say(f"{host} is no longer allowed; requests that are under way are not interrupted")
    return SUCCEEDED


def list_(
    settings: Settings,
    history: Annotated[bool, typer.Option("--history", help="Show every change with its actor, too.")] = False,
) -> int:
    """List what the tenant's HTTP steps may reach beside public addresses."""
    found = ask(settings, lambda engine: engine.network.list(history=history))
    if settings.json:
        answer(found)
        return SUCCEEDED
    table(
        [{"allowed": one} for one in found["allow"]],
        "nothing is allowed beside public addresses and what a worker allows itself (--http-allow)",
    )
    if history:
        table(
            [{**one, "content": " ".join(one["content"] or [])} for one in found["history"]], "nothing was ever changed"
        )
    return SUCCEEDED


app.command("allow")(with_settings(allow))
app.command("remove")(with_settings(remove))
app.command("list")(with_settings(list_))
