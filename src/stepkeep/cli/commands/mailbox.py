"""`stepkeep mailbox`: messages that are kept for a business key that no live run has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepkeep.cli.arguments import arg, opt
from stepkeep.cli.asking import table, tell
from stepkeep.cli.settings import Settings, with_settings

if TYPE_CHECKING:
    from stepkeep.operations.mailbox import KeptMessage, MessageList

app = typer.Typer(help="Messages that are kept for runs that do not exist yet.", no_args_is_help=True)


def list_(
    settings: Settings,
    key: Annotated[str | None, arg("[KEY]", "Only those for this business key.")] = None,
    limit: Annotated[int, opt("--limit", "How many at most.", min=1, max=10_000)] = 100,
) -> int:
    """List the messages that are kept, in the order of business key and arrival."""
    following = settings.command("mailbox", "list", "--limit", str(min(limit * 10, 10_000)))

    def words(found: MessageList) -> str | None:
        table([_row(one) for one in found.messages], "no message is kept")
        return f"there are more: {following}" if found.more else None

    return tell(settings, lambda engine: engine.mailbox.list(key, limit=limit), words)


def _row(message: KeptMessage) -> dict[str, Any]:
    shown = {name: message[name] for name in ("key", "id", "name", "sender", "arrived_at")}
    return {**shown, "kept until": "expired" if message.expired else message.expires_at}


def drop(
    settings: Settings,
    key: Annotated[str, arg("KEY", "The business key.")],
    message_id: Annotated[str | None, opt("--id", "ID", "Only this message.", show_default=False)] = None,
) -> int:
    """Drop what is kept for a business key. A duplicate of a dropped message is not kept again."""
    left = f"what is left: {settings.command('mailbox', 'list', key)}"
    return tell(
        settings,
        lambda engine: engine.mailbox.drop(key, message_id),
        lambda found: (f"dropped for {key}: {', '.join(found.dropped)}", left),
    )


app.command("list")(with_settings(list_))
app.command("drop")(with_settings(drop))
