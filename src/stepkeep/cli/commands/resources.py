"""`stepkeep resources`: what steps hold while they run, and the sizes of pools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stepkeep.cli.arguments import By, arg
from stepkeep.cli.asking import table, tell
from stepkeep.cli.settings import Settings, with_settings
from stepkeep.definition.bounds import MAX_UNITS

if TYPE_CHECKING:
    from stepkeep.operations.resources import ResourceList

app = typer.Typer(help="Resources that steps need while they run.", no_args_is_help=True)

Resource = Annotated[str, arg("RESOURCE", "Its name.")]
Number = Annotated[int, arg("NUMBER", "How many units it has.", min=1, max=MAX_UNITS)]


def set_(settings: Settings, resource: Resource, number: Number, by: By = None) -> int:
    """Give the pool RESOURCE NUMBER units. A step that needs more than are free stays ready."""
    said = (
        f"resource {resource} has {number} units; steps that hold more than that go on",
        f"End the limit: {settings.command('resources', 'clear', resource)}",
    )
    return tell(settings, lambda engine: engine.resources.set(resource, number, by=by), lambda _: said, creates=True)


def clear(settings: Settings, resource: Resource, by: By = None) -> int:
    """End the limit of a pool. Exclusive and shared use is not affected."""
    said = (
        f"no limit is set for the units of resource {resource}",
        f"See what is left: {settings.command('resources', 'list')}",
    )
    return tell(settings, lambda engine: engine.resources.clear(resource, by=by), lambda _: said)


def list_(settings: Settings) -> int:
    """List the resources that steps hold, and the pools that have a size."""

    def words(found: ResourceList) -> None:
        rows = [
            {
                "resource": one.resource,
                "units": "no limit" if one.most is None else one.most,
                "held": holder.amount if holder else "",
                "by": f"{holder.step} of {holder.run_id}" if holder else "nothing",
                "since": holder.since if holder else "",
            }
            for one in found.resources
            for holder in (*one.holders,) or (None,)
        ]
        table(rows, "no step holds a resource, and no pool has a size: set one with `stepkeep resources set`")

    return tell(settings, lambda engine: engine.resources.list(), words)


app.command("set")(with_settings(set_))
app.command("clear")(with_settings(clear))
app.command("list")(with_settings(list_))
