"""`stepkeep sinks`, `outbox`, `hooks`, `send` and `mailbox`: where events and messages go, and what comes in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from stepkeep.cli.answering import print_answer, table
from stepkeep.cli.arguments import CURSOR, Apps, By, Input, Text, Texts, arg, opt
from stepkeep.cli.command import Commands, CommandValues, program
from stepkeep.cli.commands.decide import and_run, stands
from stepkeep.cli.policies import StepPolicies
from stepkeep.cli.printer import warn
from stepkeep.cli.session import json_value, load_handlers, load_workflow, looks_like_a_file
from stepkeep.cli.settings import Settings
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.engine import AsyncEngine
    from stepkeep.operations.delivery.outbox import (
        DeliveryDetails,
        DeliveryList,
        DroppedEvent,
        OutboxStatus,
        Redriven,
        SinkActions,
    )
    from stepkeep.operations.delivery.sinks import RemovedSink, SinkList, SinkView, TestedSink
    from stepkeep.operations.messages.hooks import Delivered, HookList, RemovedHook, SavedHook
    from stepkeep.operations.messages.mailbox import DroppedMessages, MessageList
    from stepkeep.operations.people.people import MessageSent


sinks = Commands("sinks", "Where events go: webhooks, files, functions, other programs.")
SINK_NAME = arg("NAME", "The name of the sink.")
NO_SINK = "there is no sink: add one with stepkeep sinks add"


def _options(given: Sequence[str], _: str) -> Mapping[str, Any]:
    """`name=value` pairs. A value that is JSON is read as such; a name that comes twice makes a list."""
    found: dict[str, Any] = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not equals or not name:
            raise InvalidInput(f"--option is NAME=VALUE, and not {one!a}.")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        if name in found:
            before = found[name] if isinstance(found[name], list) else [found[name]]
            value = [*before, value]
        elif name == "secrets" and isinstance(value, str):
            value = [value]
        found[name] = value
    return found


@sinks.operation(
    "add",
    "sinks.add",
    under="sink",
    name=SINK_NAME,
    kind=opt("--kind", "KIND", "webhook, jsonl, host, or one that was added."),
    on=opt("--on", "PATTERN", "Event types, such as 'order.*'; repeat it. All by default."),
    events=opt("--events", "SOURCE", "emitted (default), dialect, transitions, endings or workers; may be repeated."),
    options=opt(
        "--option",
        "NAME=VALUE",
        "An option of the kind, such as url=https://…; repeat it.",
        kind=list[str],
        reads=_options,
    ),
    replace=opt("--replace", "Change the sink of this name; nothing is lost."),
)
def add_sink(sink: SinkView, asked: CommandValues) -> Iterator[str]:
    """Add a sink. Secrets are named, and read by the workers: --option secrets=HOOK_SECRET."""
    yield f"sink {sink.name} ({sink.kind}) takes {', '.join(sink.on)} of {', '.join(sink.events)}"
    yield f"try it with: {asked.command('sinks', 'test', sink.name)}"


@sinks.operation("list", "sinks.list")
def list_sinks(found: SinkList, _: CommandValues) -> None:
    """List the sinks, with how many runs wait for each."""
    table(
        found.sinks,
        NO_SINK,
        "sink kind on events waiting dead",
        sink=lambda one: one.name,
        on=lambda one: ", ".join(one.on),
        events=lambda one: ", ".join(one.events),
    )


@sinks.operation(
    "remove",
    "sinks.remove",
    name=SINK_NAME,
    discard=opt("--discard", "Lose the events that were not delivered."),
    reason=opt("--reason", "TEXT", "Why; it stays on record."),
)
def remove_sink(found: RemovedSink, _: CommandValues) -> str:
    """Remove a sink. Refused while events for it are not delivered, unless with --discard."""
    lost = f"; the events of {found.discarded_runs} runs are lost" if found.discarded_runs else ""
    return f"sink {found.removed} is removed{lost}"


@sinks.command("test")
def try_out(
    settings: Settings,
    name: Annotated[str, SINK_NAME],
    http_allow: Annotated[
        Texts, opt("--http-allow", "HOST|NETWORK[:PORT]", "Reach this host, although it is not public.")
    ] = None,
    secrets_dir: Annotated[Text, opt("--secrets-dir", "DIR", "A directory with one file for each secret.")] = None,
    secrets_file: Annotated[Text, opt("--secrets-file", "FILE", "A file with lines NAME=value.")] = None,
) -> int:
    """Send one event of type stepkeep.test from here, or from the service. Exit status 1 if it is not acknowledged."""
    if http_allow or secrets_dir or secrets_file:
        settings.require_database("sinks test with --http-allow, --secrets-dir or --secrets-file")
    given: dict[str, Any] = {}
    if settings.server is None:
        options = StepPolicies(http_allow=http_allow, secrets_dir=secrets_dir, secrets_file=secrets_file).options()
        given = {"http": options["http"], "secrets": options["secrets"]}

    def words(found: TestedSink) -> str | None:
        if found.delivered:
            return f"sink {found.sink} acknowledged the event"
        warn(f"sink {found.sink} did not acknowledge the event: {found.error}")
        return None

    return print_answer(
        settings, lambda engine: engine.sinks.test(name, **given), words, fails=lambda found: not found.delivered
    )


outbox = Commands("outbox", "Events on their way to sinks.")
RUN = arg("RUN", "The run, or the beginning of its id.", typed_as="run", is_run=True)
SINK = arg("SINK", "The sink.")
OF_SINK = opt("--sink", "NAME", "This sink alone.")
REASON = opt("--reason", "TEXT", "Why; it stays on record.", by_default="")


def _has_dead(found: OutboxStatus) -> bool:
    return any(one.dead for one in found.sinks)


@outbox.operation(
    "list",
    "outbox.list",
    state=opt("--state", "STATE", "ready, sending or dead."),
    sink=OF_SINK,
    run_id=opt("--run", "RUN", "This run alone, sent or not.", typed_as="run", is_run=True),
    after=CURSOR,
)
def list_outbox(found: DeliveryList, asked: CommandValues) -> str | None:
    """List runs with events that are not delivered, by sink."""
    nothing, shown = "nothing waits to be delivered", "sink run state attempts due error"
    table(found.deliveries, nothing, shown, due=lambda one: one.ready_at or one.dead_at)
    return f"more with: {asked.command('outbox', 'list', '--cursor', found.next)}" if found.next else None


@outbox.operation("show", "outbox.show", run_id=RUN, sink=SINK)
def show_delivery(found: DeliveryDetails, asked: CommandValues) -> Iterator[str]:
    """Show what a run has for a sink: events that are not delivered, and what people did."""
    one = found.delivery
    said = f": {one.error}" if one.error else ""
    yield f"run {one.run} to {one.sink}: {one.state}, {one.attempts} failed attempts{said}"
    for event in found.events:
        yield f"  {event.id}  {event.type}  {event.state}"
    for action in found.actions:
        yield f"  {action.action} by {action.actor} at {action.at}: {action.reason}"
    if one.state == "dead":
        again = asked.command("outbox", "redrive", "--run", one.run, "--sink", one.sink)
        yield f"send it again: {again} --reason …"


@outbox.operation(
    "redrive",
    "outbox.redrive",
    run_id=opt("--run", "RUN", "Of this run.", typed_as="run", is_run=True),
    sink=OF_SINK,
    reason=REASON,
)
def redrive(found: Redriven, asked: CommandValues) -> Iterator[str]:
    """Send dead events again: of a run, of a sink, or of both. They keep their order."""
    for one in found.redriven:
        yield f"run {one.run} is sent to {one.sink} again"
    yield f"see what becomes of it: {asked.command('outbox', 'status')}"


@outbox.operation(
    "drop",
    "outbox.drop",
    run_id=RUN,
    sink=SINK,
    event=arg("EVENT", "The id of the dead event, as `outbox show` has it."),
    reason=REASON,
)
def drop_event(found: DroppedEvent, _: CommandValues) -> str:
    """Give up a dead event for good; the events after it are sent."""
    return f"event {found.dropped} is not sent to {found.sink} any more; the events after it are"


@outbox.operation("status", "outbox.status", fails=_has_dead)
def outbox_status(found: OutboxStatus, asked: CommandValues) -> str | None:
    """Show how far each sink is behind. Exit status 1 if an event is dead."""
    table(found.sinks, NO_SINK)
    dead = asked.command("outbox", "list", "--state", "dead")
    return f"dead events hold up their runs: {dead}" if _has_dead(found) else None


@outbox.operation("history", "outbox.history")
def outbox_history(found: SinkActions, _: CommandValues) -> Iterator[str]:
    """Show what people did to sinks and events, newest first."""
    for one in found.actions:
        about = f" {one.event or one.run}" if one.run else ""
        why = f": {one.reason}" if one.reason else ""
        yield f"{one.at}  {one.actor} {one.action} {one.sink}{about}{why}"
    if not found.actions:
        yield "nothing was done yet"


hooks = Commands("hooks", "Inbound webhooks that become messages or starts of runs.")
HOOK = arg("NAME", "The hook.")


def _mapping(file: Path, _: str = "") -> Mapping[str, Any]:
    from stepkeep.definition.text.document import read_document

    data: Any = read_document(file).data
    if not isinstance(data, dict):
        raise InvalidInput("the file has one mapping, as in {hook: billing, scheme: standard, …}.")
    return data


@hooks.operation(
    "add",
    "hooks.add",
    creates=True,
    document=arg("FILE", "Its definition: YAML or JSON.", typed_as="file", kind=Path, reads=_mapping),
)
def add_hook(found: SavedHook, asked: CommandValues) -> Iterator[str]:
    """Save an endpoint. One of the same name is replaced, and the earlier one stays on record."""
    yield f"hook {found.hook.hook} is saved; it verifies with {', '.join(found.hook.secrets)}"
    yield f"Try a recorded delivery: {asked.command('hooks', 'test', found.hook.hook, 'FILE')}"


@hooks.operation("remove", "hooks.remove", name=HOOK)
def remove_hook(_: RemovedHook, asked: CommandValues) -> str:
    """Remove an endpoint."""
    return f"hook {asked['name']} is removed; deliveries to it are refused"


@hooks.operation("list", "hooks.list")
def list_hooks(found: HookList, _: CommandValues) -> None:
    """List the endpoints."""
    table(
        found.hooks,
        "there is no hook",
        "hook scheme secrets becomes saved_by",
        secrets=lambda one: " ".join(one.secrets),
        becomes=lambda one: f"a start of {one.start['workflow']}" if one.start else "a message",
    )


@hooks.command("test")
def test_hook(
    settings: Settings,
    name: Annotated[str, HOOK],
    file: Annotated[Path, arg("FILE", "A delivery: headers (a mapping) and body (a text).")],
) -> int:
    """Verify and map a recorded delivery, and do nothing else. Its time must be within five minutes."""
    delivery = _mapping(file)
    headers, body = delivery.get("headers"), delivery.get("body")
    if set(delivery) != {"headers", "body"} or not isinstance(headers, dict) or not isinstance(body, str):
        raise InvalidInput("a delivery has headers, a mapping of texts, and body, a text, and nothing else.")
    texts = {str(key): str(value) for key, value in headers.items()}

    def words(one: Delivered) -> str:
        return f"{one.result}, as {one.id}" if one.id else f"refused ({one.code}): {one.message}"

    return print_answer(
        settings, lambda engine: engine.hooks.test(name, texts, body), words, fails=lambda one: one.result == "refused"
    )


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

        async def work(engine: AsyncEngine) -> Mapping[str, Any]:
            workflow = None if start is None else await _workflow(settings, engine, start, handlers)
            record = await engine.send(name=event, payload=value, start=workflow, **options)
            return {"decision": record, **({} if record.run_id is None else await engine.show(record.run_id))}

    def words(said: Mapping[str, Any]) -> Iterator[str]:
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
