"""`stepkeep dialects`: which specifications Stepkeep speaks, and each one's machines, extensions and defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from stepkeep.cli.arguments import arg, opt
from stepkeep.cli.printer import answer, console, page
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import SUCCEEDED
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.dialects.dialect import Judged


def dialects(
    settings: Settings,
    name: Annotated[str | None, arg("NAME", "One dialect, in full.")] = None,
    mermaid: Annotated[bool, opt("--mermaid", "Draw its machines as Mermaid diagrams.")] = False,
    schema: Annotated[bool, opt("--schema", "The JSON Schema of its format.")] = False,
) -> int:
    """List the dialects, or tell all about one: states, arrows, extensions with their reasons, defaults."""
    from stepkeep.dialects import registry

    if name is None:
        if mermaid or schema:
            raise InvalidInput("Say which dialect: stepkeep dialects NAME --mermaid.")
        _list(settings, [registry.judged(one) for one in registry.names()])
        return SUCCEEDED
    if schema:
        answer(dict(registry.dialect(name).schema))
        return SUCCEEDED
    judged = registry.judged(name)
    if settings.json:
        answer(description(judged))
    elif mermaid:
        from stepkeep.cli.render.machines import mermaid_of

        page("\n".join(mermaid_of(judged)))
    else:
        from stepkeep.cli.render.machines import pages_of

        for part in pages_of(judged):
            console().print(part)
    return SUCCEEDED


def _list(settings: Settings, found: list[Judged]) -> None:
    rows = [{"name": one.name, "seed": one.seed, "title": one.title} for one in found]
    if settings.json:
        answer({"dialects": rows})
        return
    from stepkeep.cli.render.tables import plain_table

    console().print(plain_table(rows))


def description(judged: Judged) -> dict[str, Any]:
    """All that a dialect's file says, as JSON."""
    return {
        "name": judged.name,
        "seed": judged.seed,
        "title": judged.title,
        "machines": [
            {
                "noun": view.noun,
                "states": list(view.states),
                "terminal": sorted(view.terminal),
                "arrows": [arrow._asdict() for arrow in view.arrows],
                "forbidden": [pair._asdict() for pair in view.forbidden],
                "extra": dict(view.extra),
                "extensions": [extension._asdict() for extension in view.extensions],
                "shows": dict(view.shows),
            }
            for view in judged.views
        ],
        "invariants": [{"name": one.name, "cites": one.cites} for one in judged.invariants],
        "defaults": [default._asdict() for default in judged.defaults],
    }
