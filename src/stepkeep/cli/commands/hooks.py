"""`stepkeep hooks`: inbound webhooks, whose deliveries become messages or starts of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from stepkeep.cli.arguments import By
from stepkeep.cli.commands.users import ask, table
from stepkeep.cli.printer import answer, say
from stepkeep.cli.settings import Settings, with_settings
from stepkeep.cli.status import FAILED, SUCCEEDED
from stepkeep.kernel.errors import InvalidInput

app = typer.Typer(help="Inbound webhooks that become messages or starts of runs.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The hook.", show_default=False)]


def add(
    settings: Settings,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Its definition: YAML or JSON.", show_default=False)],
    by: By = None,
) -> int:
    """Save an endpoint. One of the same name is replaced, and the earlier one stays on record."""
    document = _mapping(file)
    found = ask(settings, lambda engine: engine.hooks.add(document, by=by), creates=True)
    if settings.json:
        answer(found)
    else:
        hook = found["hook"]
        say(f"hook {hook['hook']} is saved; it verifies with {', '.join(hook['secrets'])}")
        say(f"Try a recorded delivery: {settings.command('hooks', 'test', hook['hook'], 'FILE')}")
    return SUCCEEDED


def remove(settings: Settings, name: Name, by: By = None) -> int:
    """Remove an endpoint."""
    found = ask(settings, lambda engine: engine.hooks.remove(name, by=by))
    if settings.json:
        answer(found)
    else:
        say(f"hook {name} is removed; deliveries to it are refused")
    return SUCCEEDED


def list_(settings: Settings) -> int:
    """List the endpoints."""
    found = ask(settings, lambda engine: engine.hooks.list())
    if settings.json:
        answer(found)
    else:
        rows = [
            {
                "hook": one["hook"],
                "scheme": one["scheme"],
                "secrets": " ".join(one["secrets"]),
                "becomes": "a message" if "message" in one else f"a start of {one['start']['workflow']}",
                "saved_by": one["saved_by"],
            }
            for one in found["hooks"]
        ]
        table(rows, "there is no hook")
    return SUCCEEDED


def test(
    settings: Settings,
    name: Name,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A delivery: headers (a mapping) and body (a text).", show_default=False),
    ],
) -> int:
    """Verify and map a recorded delivery, and do nothing else. Its time must be within five minutes."""
    delivery = _mapping(file)
    headers, body = delivery.get("headers"), delivery.get("body")
    if set(delivery) != {"headers", "body"} or not isinstance(headers, dict) or not isinstance(body, str):
        raise InvalidInput("a delivery has headers, a mapping of texts, and body, a text, and nothing else.")
    texts = {str(key): str(value) for key, value in headers.items()}
    found = ask(settings, lambda engine: engine.hooks.receive(name, texts, body.encode(), dry_run=True))
    if settings.json:
        answer(found)
    elif found["result"] == "refused":
        say(f"refused ({found['code']}): {found['message']}")
    else:
        say(f"{found['result']}, as {found['id']}")
    return FAILED if found["result"] == "refused" else SUCCEEDED


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
