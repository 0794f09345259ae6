"""The laboratory's commands: `stepkeep lab …` and `stepkeep bench`."""

from __future__ import annotations

import typer

PANEL = "Test the engine"


def add_commands(app: typer.Typer) -> None:
    """Add the laboratory's commands to the program; the entry point of this distribution."""
    from stepkeep.cli.settings import CommandNeeds, with_settings
    from stepkeep_lab.cli import bench, lab

    app.command("bench", rich_help_panel=PANEL)(with_settings(bench.bench, CommandNeeds.NOTHING))
    app.add_typer(lab.app, name="lab", rich_help_panel=PANEL)
