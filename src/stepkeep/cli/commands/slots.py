"""`stepkeep slots`: limits on running runs, of the tenant and of workflows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stepkeep.cli.arguments import By, arg, opt
from stepkeep.cli.asking import table, tell
from stepkeep.cli.settings import Settings, with_settings
from stepkeep.definition.bounds import MAX_SLOTS

if TYPE_CHECKING:
    from stepkeep.operations.slots import SlotList

app = typer.Typer(help="Limits on running runs.", no_args_is_help=True)

Workflow = Annotated[str | None, opt("--workflow", "NAME", "A workflow, not the whole tenant.", show_default=False)]
Number = Annotated[int, arg("NUMBER", "How many runs may hold a slot.", min=1, max=MAX_SLOTS)]


def set_(settings: Settings, number: Number, workflow: Workflow = None, by: By = None) -> int:
    """Let at most NUMBER runs of the tenant run, or of a workflow. Further ones stay queued until a slot is free."""
    undo = () if workflow is None else ("--workflow", workflow)
    said = (
        f"at most {number} runs of {_scope(settings, workflow)} run; processes notice it within two seconds",
        "runs that are running go on; those that started under no limit are not counted",
        f"End the limit: {settings.command('slots', 'clear', *undo)}",
    )
    return tell(
        settings, lambda engine: engine.slots.set(number, workflow=workflow, by=by), lambda _: said, creates=True
    )


def clear(settings: Settings, workflow: Workflow = None, by: By = None) -> int:
    """End a limit that was set. The `slots` of a definition stay."""
    said = (
        f"no limit is set for {_scope(settings, workflow)}; workers grant slots to the runs that wait",
        f"See what is left: {settings.command('slots', 'list')}",
    )
    return tell(settings, lambda engine: engine.slots.clear(workflow=workflow, by=by), lambda _: said)


def list_(settings: Settings) -> int:
    """List the limits, and how many runs hold a slot and wait for one."""

    def words(found: SlotList) -> None:
        rows = [
            {
                "of": "the tenant" if one.workflow is None else f"workflow {one.workflow}",
                "most": "no limit" if one.most is None else one.most,
                "held": one.held,
                "waiting": one.waiting,
            }
            for one in found.slots
        ]
        table(rows, "no run is under a limit: set one with `stepkeep slots set`, or `slots` in a definition")

    return tell(settings, lambda engine: engine.slots.list(), words)


def _scope(settings: Settings, workflow: str | None) -> str:
    return settings.whose if workflow is None else f"workflow {workflow}"


app.command("set")(with_settings(set_))
app.command("clear")(with_settings(clear))
app.command("list")(with_settings(list_))
