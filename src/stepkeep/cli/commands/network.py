"""`stepkeep network`: the internal hosts that HTTP steps of the tenant may reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import UNSET

from stepkeep.cli.arguments import By, arg, opt
from stepkeep.cli.asking import table, tell
from stepkeep.cli.settings import Needs, Settings, with_settings

if TYPE_CHECKING:
    from stepkeep.operations.network import Allowed

app = typer.Typer(help="What HTTP steps may reach on the internal network.", no_args_is_help=True)

Host = Annotated[str, arg("ADDRESS", "As in search.internal:9200 or 10.0.0.0/8.")]


def allow(settings: Settings, host: Host, by: By = None) -> int:
    """Let HTTP steps of the tenant reach a host, an address or a network, although it is internal."""
    said = (
        f"HTTP steps of tenant {settings.tenant} may reach {host}; the next attempt of each uses it",
        f"Take it back: {settings.command('network', 'remove', host)}",
    )
    return tell(settings, lambda engine: engine.network.allow(host, by=by), lambda _: said, creates=True)


def remove(settings: Settings, host: Host, by: By = None) -> int:
    """Remove an entry of the allow list."""
    said = f"{host} is no longer allowed; requests that are under way are not interrupted"
    return tell(settings, lambda engine: engine.network.remove(host, by=by), lambda _: said)


def list_(
    settings: Settings,
    history: Annotated[bool, opt("--history", "Show every change with its actor, too.")] = False,
) -> int:
    """List what the tenant's HTTP steps may reach beside public addresses."""

    def words(found: Allowed) -> None:
        table(
            [{"allowed": one} for one in found.allow],
            "nothing is allowed beside public addresses and what a worker allows itself (--http-allow)",
        )
        if found.history is not UNSET:
            rows = [{**one, "content": " ".join(one.content or [])} for one in found.history]
            table(rows, "nothing was ever changed")

    return tell(settings, lambda engine: engine.network.list(history=history), words)


app.command("allow")(with_settings(allow, Needs.DATABASE))
app.command("remove")(with_settings(remove, Needs.DATABASE))
app.command("list")(with_settings(list_))
