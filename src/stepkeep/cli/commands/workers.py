"""`stepkeep workers`: which worker processes there are, what they serve and how much they hold. Reads only."""

from __future__ import annotations

from typing import Annotated

from stepkeep.cli.arguments import opt
from stepkeep.cli.asking import ask
from stepkeep.cli.printer import answer, console, say
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import SUCCEEDED


def workers(
    settings: Settings,
    all_: Annotated[bool, opt("--all", "Also those that were shut down.")] = False,
) -> int:
    """List workers."""
    found = ask(settings, lambda engine: engine.workers(live_only=not all_))
    if settings.json:
        answer(found)
    elif not found.workers:
        say("no workers")
    else:
        from stepkeep.cli.render.tables import workers_table

        console().print(workers_table(found.workers))
    return SUCCEEDED
