"""`stepkeep schemas`: the registry of JSON Schemas that definitions refer to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepkeep.cli.arguments import arg, opt
from stepkeep.cli.asking import table, tell
from stepkeep.cli.settings import Settings, with_settings

if TYPE_CHECKING:
    from stepkeep.operations.schemas import Schemas, SchemaView

app = typer.Typer(help="JSON Schemas that definitions refer to by name.", no_args_is_help=True)

Ref = Annotated[str, arg("REF", "The reference of a published schema.")]


def publish(
    settings: Settings,
    file: Annotated[Path, arg("FILE", "A JSON Schema: JSON or YAML.")],
    ref: Annotated[str, opt("--ref", "REF", "The name by which definitions refer to it.", show_default=False)],
) -> int:
    """Publish a JSON Schema under a reference. A published schema never changes."""
    from stepkeep.definition.document import read_document

    schema: Any = read_document(file).data

    def words(found: SchemaView) -> str:
        return f"schema {found.schema.ref} is published, digest {found.schema.digest[:12]}"

    return tell(settings, lambda engine: engine.publish_schema(ref, schema), words, creates=True)


def list_(settings: Settings) -> int:
    """List published schemas by reference."""

    def words(found: Schemas) -> None:
        table([{**one, "digest": one.digest[:12]} for one in found.schemas], "no schema is published")

    return tell(settings, lambda engine: engine.schemas(), words)


def show(settings: Settings, ref: Ref) -> int:
    """Print a published schema."""
    import msgspec

    def words(found: SchemaView) -> list[str]:
        return msgspec.json.format(msgspec.json.encode(found.schema.document)).decode().splitlines()

    return tell(settings, lambda engine: engine.schema(ref), words)


app.command("publish")(with_settings(publish))
app.command("list")(with_settings(list_))
app.command("show")(with_settings(show))
