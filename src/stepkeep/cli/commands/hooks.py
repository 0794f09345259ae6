"""`stepkeep hooks`: inbound webhooks, whose deliveries become messages or starts of runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepkeep.cli.arguments import By, arg
from stepkeep.cli.asking import table, tell
from stepkeep.cli.settings import Settings, with_settings
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.operations.hooks import HookView

app = typer.Typer(help="Inbound webhooks that become messages or starts of runs.", no_args_is_help=True)

Name = Annotated[str, arg("NAME", "The hook.")]


def add(
    settings: Settings,
    file: Annotated[Path, arg("FILE", "Its definition: YAML or JSON.")],
    by: By = None,
) -> int:
    """Save an endpoint. One of the same name is replaced, and the earlier one stays on record."""
    document = _mapping(file)
    return tell(
        settings,
        lambda engine: engine.hooks.add(document, by=by),
        lambda found: (
            f"hook {found.hook.hook} is saved; it verifies with {', '.join(found.hook.secrets)}",
            f"Try a recorded delivery: {settings.command('hooks', 'test', found.hook.hook, 'FILE')}",
        ),
        creates=True,
    )


def remove(settings: Settings, name: Name, by: By = None) -> int:
    """Remove an endpoint."""
    said = f"hook {name} is removed; deliveries to it are refused"
    return tell(settings, lambda engine: engine.hooks.remove(name, by=by), lambda _: said)


def list_(settings: Settings) -> int:
    """List the endpoints."""
    return tell(
        settings,
        lambda engine: engine.hooks.list(),
        lambda found: table([_row(one) for one in found.hooks], "there is no hook"),
    )


def _row(one: HookView) -> dict[str, Any]:
    return {
        "hook": one.hook,
        "scheme": one.scheme,
        "secrets": " ".join(one.secrets),
        "becomes": f"a start of {one.start['workflow']}" if one.start else "a message",
        "saved_by": one.saved_by,
    }


def test(
    settings: Settings,
    name: Name,
    file: Annotated[Path, arg("FILE", "A delivery: headers (a mapping) and body (a text).")],
) -> int:
    """Verify and map a recorded delivery, and do nothing else. Its time must be within five minutes."""
    delivery = _mapping(file)
    headers, body = delivery.get("headers"), delivery.get("body")
    if set(delivery) != {"headers", "body"} or not isinstance(headers, dict) or not isinstance(body, str):
        raise InvalidInput("a delivery has headers, a mapping of texts, and body, a text, and nothing else.")
    texts = {str(key): str(value) for key, value in headers.items()}
    return tell(
        settings,
        lambda engine: engine.hooks.test(name, texts, body),
        lambda one: f"{one.result}, as {one.id}" if one.id else f"refused ({one.code}): {one.message}",
        fails=lambda one: one.result == "refused",
    )


def _mapping(file: Path) -> dict[str, Any]:
    from stepkeep.definition.document import read_document

    data: Any = read_document(file).data
    if not isinstance(data, dict):
        raise InvalidInput("the file has one mapping, as in {hook: billing, scheme: standard, …}.")
    return data


app.command("add")(with_settings(add))
app.command("remove")(with_settings(remove))
app.command("list")(with_settings(list_))
app.command("test")(with_settings(test))
