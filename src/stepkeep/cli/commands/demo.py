"""`stepkeep demo`: what durable means, shown in half a minute on a database of its own."""

from __future__ import annotations

from typing import Annotated

from stepkeep.cli.arguments import opt
from stepkeep.cli.settings import Settings


def demo(
    settings: Settings,
    directory: Annotated[str | None, opt("--directory", "DIR", "Where to work; a temporary one by default.")] = None,
) -> int:
    """Show a rollback, a worker that is killed and replaced, and an approval. Needs no network and no set-up."""
    from stepkeep.cli.demo.tour import tour

    return tour(directory, json=settings.json)
