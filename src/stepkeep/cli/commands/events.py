"""`stepkeep sinks`, `outbox` and `hooks`: where events go, what is not delivered yet, and what comes in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from stepkeep.cli.answering import print_answer, table
from stepkeep.cli.arguments import CURSOR, Text, Texts, arg, opt
from stepkeep.cli.command import Commands, CommandValues
from stepkeep.cli.policies import Policies
from stepkeep.cli.printer import warn
from stepkeep.cli.settings import Settings
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
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

sinks = Commands("sinks", "Where events go: webhooks, files, functions, other programs.")
SINK_NAME = arg("NAME", "The name of the sink.")
NO_SINK = "there is no sink: add one with stepkeep sinks add"


def _options(given: Sequence[str], _: str) -> dict[str, Any]:
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
        options = Policies(http_allow=http_allow, secrets_dir=secrets_dir, secrets_file=secrets_file).options()
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
def drop(found: DroppedEvent, _: CommandValues) -> str:
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


def _mapping(file: Path, _: str = "") -> dict[str, Any]:
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
