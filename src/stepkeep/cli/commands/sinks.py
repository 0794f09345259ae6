"""`stepkeep sinks`: say where events go, and try it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepkeep.cli.arguments import By, arg, opt
from stepkeep.cli.asking import table, tell
from stepkeep.cli.policies import Policies
from stepkeep.cli.printer import warn
from stepkeep.cli.settings import Settings, with_settings
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.operations.sinks import RemovedSink, SinkSummary, TestedSink

app = typer.Typer(help="Where events go: webhooks, files, functions, other programs.", no_args_is_help=True)

Name = Annotated[str, arg("NAME", "The name of the sink.")]


def add(
    settings: Settings,
    name: Name,
    kind: Annotated[str, opt("--kind", "KIND", "webhook, jsonl, host, or one that was added.")],
    on: Annotated[
        list[str] | None, opt("--on", "PATTERN", "Event types, such as 'order.*'; repeat it. All by default.")
    ] = None,
    events: Annotated[
        list[str] | None,
        opt("--events", "SOURCE", "emitted (default), dialect, transitions, endings or workers; may be repeated."),
    ] = None,
    option: Annotated[
        list[str] | None, opt("--option", "NAME=VALUE", "An option of the kind, such as url=https://…; repeat it.")
    ] = None,
    replace: Annotated[bool, opt("--replace", "Change the sink of this name; nothing is lost.")] = False,
    by: By = None,
) -> int:
    """Add a sink. Secrets are named, and read by the workers: --option secrets=HOOK_SECRET."""
    options = _options(option or [])
    return tell(
        settings,
        lambda engine: engine.sinks.add(
            name, kind, on=on or ["*"], events=events or ["emitted"], options=options, replace=replace, by=by
        ),
        lambda sink: (
            f"sink {sink.name} ({sink.kind}) takes {', '.join(sink.on)} of {', '.join(sink.events)}",
            f"try it with: {settings.command('sinks', 'test', sink.name)}",
        ),
        under="sink",
    )


def _options(given: list[str]) -> dict[str, Any]:
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


def listed(settings: Settings) -> int:
    """List the sinks, with how many runs wait for each."""
    nothing = "there is no sink: add one with stepkeep sinks add"
    return tell(
        settings,
        lambda engine: engine.sinks.list(),
        lambda found: table([_row(one) for one in found.sinks], nothing),
    )


def _row(one: SinkSummary) -> dict[str, Any]:
    shown = {"sink": one.name, "kind": one.kind, "on": ", ".join(one.on), "events": ", ".join(one.events)}
    return {**shown, "waiting": one.waiting, "dead": one.dead}


def remove(
    settings: Settings,
    name: Name,
    discard: Annotated[bool, opt("--discard", "Lose the events that were not delivered.")] = False,
    reason: Annotated[str, opt("--reason", "TEXT", "Why; it stays on record.")] = "",
    by: By = None,
) -> int:
    """Remove a sink. Refused while events for it are not delivered, unless with --discard."""

    def words(found: RemovedSink) -> str:
        lost = f"; the events of {found.discarded_runs} runs are lost" if found.discarded_runs else ""
        return f"sink {found.removed} is removed{lost}"

    return tell(settings, lambda engine: engine.sinks.remove(name, discard=discard, reason=reason, by=by), words)


def try_out(
    settings: Settings,
    name: Name,
    http_allow: Annotated[
        list[str] | None, opt("--http-allow", "HOST|NETWORK[:PORT]", "Reach this host, although it is not public.")
    ] = None,
    secrets_dir: Annotated[
        str | None, opt("--secrets-dir", "DIR", "A directory with one file for each secret.")
    ] = None,
    secrets_file: Annotated[str | None, opt("--secrets-file", "FILE", "A file with lines NAME=value.")] = None,
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

    return tell(
        settings,
        lambda engine: engine.sinks.test(name, **given),
        words,
        fails=lambda found: not found.delivered,
    )


app.command("add")(with_settings(add))
app.command("list")(with_settings(listed))
app.command("remove")(with_settings(remove))
app.command("test")(with_settings(try_out))
