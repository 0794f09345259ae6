"""`stepkeep send` and `mailbox`: messages to runs, by id, business key or correlation id, and those that are kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from stepkeep.cli.answering import print_answer, table
from stepkeep.cli.arguments import Apps, By, Input, Text, arg, opt
from stepkeep.cli.command import Commands, CommandValues, program
from stepkeep.cli.commands.decide import and_run, stands
from stepkeep.cli.session import json_value, load_handlers, load_workflow, looks_like_a_file
from stepkeep.cli.settings import Settings
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.engine import AsyncEngine
    from stepkeep.operations.messages.mailbox import DroppedMessages, MessageList
    from stepkeep.operations.people.people import MessageSent


@program.command("send")
def send(
    settings: Settings,
    first: Annotated[
        str, arg("[RUN]", "The run's id, or enough of its beginning or end; or --business-key or --correlation-id.")
    ],
    second: Annotated[Text, arg("NAME", "The event's name.")] = None,
    payload: Annotated[Text, opt("--payload", "JSON|@FILE", "What the message says.")] = None,
    message_id: Annotated[Text, opt("--id", "ID", "The sender's id: the same one again changes nothing.")] = None,
    key: Annotated[Text, opt("--business-key", "KEY", "To the run that has it; kept while none has.")] = None,
    correlation: Annotated[Text, opt("--correlation-id", "ID", "To the only live run that has it.")] = None,
    start: Annotated[
        Text, opt("--start", "FILE_OR_NAME", "With --business-key: start this workflow if no run has the key.")
    ] = None,
    app: Apps = None,
    input: Input = None,  # noqa: A002 - the option's name
    idempotency_key: Annotated[
        Text, opt("--idempotency-key", "KEY", "With --start: the same key never makes a second run.")
    ] = None,
    ttl: Annotated[Text, opt("--ttl", "DURATION", "With --business-key: how long it is kept; 7d by default.")] = None,
    by: By = None,
) -> int:
    """Send a message to a run.

    By business key, it reaches a run that does not exist yet, too: it is kept until one is started with that key.
    """
    run, event = _target(first, second, key, correlation)
    value = json_value(payload, "--payload")
    if run is not None:
        if any(one is not None for one in (start, input, idempotency_key, ttl, app)):
            raise InvalidInput("--start, --app, --input, --idempotency-key and --ttl go with --business-key.")
        work = and_run(run, lambda engine, found: engine.send(found, event, value, message_id=message_id, by=by))
    else:
        handlers = load_handlers(app or []) if start is not None else None
        options = {"key": key, "correlation_id": correlation, "idempotency_key": idempotency_key, "ttl": ttl}
        options |= {"message_id": message_id, "by": by, "input": json_value(input, "--input")}

        async def work(engine: AsyncEngine) -> dict[str, Any]:
            workflow = None if start is None else await _workflow(settings, engine, start, handlers)
            record = await engine.send(name=event, payload=value, start=workflow, **options)
            return {"decision": record, **({} if record.run_id is None else await engine.show(record.run_id))}

    def words(said: dict[str, Any]) -> Iterator[str]:
        run = said.get("run")
        yield f"{event} {_fate(said['decision'])}{f'; {stands(run)}' if run else ''}"
        if not run:
            yield f"see what is kept with: {settings.command('mailbox', 'list', str(key))}"

    return print_answer(settings, work, words, creates=start is not None)


def _target(first: str, second: str | None, key: str | None, correlation: str | None) -> tuple[str | None, str]:
    """The run, if it is named by its id, and the name of the event."""
    if key is not None and correlation is not None:
        raise InvalidInput("--business-key and --correlation-id both find the run: give one of them.")
    if key is None and correlation is None:
        if second is None:
            raise InvalidInput("Say to which run: RUN NAME, or --business-key KEY NAME, or --correlation-id ID NAME.")
        return first, second
    if second is not None:
        raise InvalidInput(f"--business-key and --correlation-id find the run: leave out RUN, which is {first!r} here.")
    return None, first


async def _workflow(settings: Settings, engine: AsyncEngine, what: str, handlers: Any) -> Any:
    return await engine.publish(load_workflow(settings, what, handlers)) if looks_like_a_file(what) else what


def _fate(record: MessageSent) -> str:
    """What became of a message: people who mistype an event's name should see that no step waited for it."""
    if record.repeated:
        what = ", and was dropped or has expired" if record.get("dropped") else ", and nothing changed"
        return f"was sent before as {record.id}{what}"
    if record.get("kept_until") is not None:
        return f"is kept for {record.key} until {record.kept_until}: no run has this key yet"
    began = "started the run and " if record.get("started") else ""
    if record.get("consumed_by") is None:
        return f"{began}is kept: no step waits for it yet"
    return f"{began}went to {record.consumed_by}"


mailbox = Commands("mailbox", "Messages that are kept for runs that do not exist yet.")


@mailbox.operation("list", "mailbox.list", key=arg("[KEY]", "Only those for this business key."))
def list_messages(found: MessageList, asked: CommandValues) -> str | None:
    """List the messages that are kept, in the order of business key and arrival."""
    shown = ("key", "id", "name", "sender", "arrived_at")
    rows = [
        {**{name: one[name] for name in shown}, "kept until": "expired" if one.expired else one.expires_at}
        for one in found.messages
    ]
    table(rows, "no message is kept")
    from stepkeep.operations.operation import MOST_LISTED

    following = asked.command("mailbox", "list", "--limit", str(min(asked["limit"] * 10, MOST_LISTED)))
    return f"there are more: {following}" if found.more else None


@mailbox.operation(
    "drop",
    "mailbox.drop",
    key=arg("KEY", "The business key."),
    message_id=opt("--id", "ID", "Only this message.", show_default=False),
)
def drop(found: DroppedMessages, asked: CommandValues) -> Iterator[str]:
    """Drop what is kept for a business key. A duplicate of a dropped message is not kept again."""
    yield f"dropped for {asked['key']}: {', '.join(found.dropped)}"
    yield f"what is left: {asked.command('mailbox', 'list', asked['key'])}"
