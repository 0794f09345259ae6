"""Everything about one run on one screen: head, graph, timeline, attempts, output, what to do next.

Pure: from a `describe_run` view to a rich group. `show`, `run` and `demo` print it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType

from stepkeep.cli.render.consoles import Text
from stepkeep.cli.render.graph import draw_graph
from stepkeep.cli.render.lines import began, shorten
from stepkeep.cli.render.look import clock, look, seconds_between, span, words
from stepkeep.cli.render.tables import attempts_table
from stepkeep.cli.render.timeline import draw_timeline
from stepkeep.cli.settings import Settings
from stepkeep.edges.redaction import hide_secrets
from stepkeep.edges.safe_text import inert_json, inert_line
from stepkeep.operations.continuation.continued import course_lines

OUTPUT_LINES, OUTPUT_WIDTH = 20, 500
"""How much of an output is shown."""
MOST_PAYLOADS = 12
MOST_WARNINGS = 20


def report(
    view: Mapping[str, Any], *, width: int = 100, now: datetime | None = None, hints: Sequence[str] = ()
) -> Group:
    """The whole of it."""
    parts: list[RenderableType] = [*head(view["run"]), Text(), draw_graph(view, now=now, width=width)]
    if any(map(began, view["steps"])):
        parts += [Text(), draw_timeline(view, width=max(20, min(80, width - 48)), now=now)]
    parts += _payloads(view)
    attempts = attempts_table(view["steps"])
    if attempts is not None:
        parts += [Text(), attempts]
    parts += tail(view["run"], hints)
    return Group(*parts)


def _payloads(view: Mapping[str, Any]) -> list[RenderableType]:
    """The input of the run and the outputs of its steps, one line each. Texts under secret names are hidden."""
    told = [("input", view["run"]["input"])] if view["run"]["input"] else []
    told += [(step["name"], step["output"]) for step in view["steps"] if step["output"] is not None]
    if not told:
        return []
    public = [(name, json.dumps(hide_secrets(value), ensure_ascii=False)) for name, value in told[:MOST_PAYLOADS]]
    lines = [Text(shorten(f"{name} = {inert_json(text)}"), "dim") for name, text in public]
    if len(told) > MOST_PAYLOADS:
        lines.append(Text(f"… and {len(told) - MOST_PAYLOADS:,} more outputs; --json has them all", "dim"))
    return [Text(), *lines]


def head(run: Mapping[str, Any]) -> list[Text]:
    """Which run this is, how it stands, and why."""
    title = Text.assemble(
        (f"{look(run['state']).mark} ", look(run["state"]).style),
        (f"{run['workflow']} v{run['version']} ", "bold"),
        (words(run["state"]), look(run["state"]).style),
    )
    took = span(seconds_between(run["started_at"], run["ended_at"]))
    if took:
        title.append(f" in {took}", "dim")
    if run["rollback"] != "none":
        title.append(f", rollback {run['rollback']}", "yellow")
    lines = [title, Text(f"run {run['id']}, by {run['created_by']} at {clock(run['created_at'])}", "dim")]
    about = [f"business key {run['business_key']}"] if run["business_key"] else []
    lines += [Text(inert_line(line), "dim") for line in (*about, *course_lines(run))]
    if run["error"]:
        said = f"{run['category']}: {run['error']}" if run["category"] else run["error"]
        # Indented, so that no line of an error can be taken for a line of ours.
        lines.append(Text(said.replace("\n", "\n  "), "red"))
    return lines


def tail(run: Mapping[str, Any], hints: Sequence[str]) -> list[RenderableType]:
    """The output, the tolerated failures, and the next commands."""
    parts: list[RenderableType] = []
    if run["warnings"]:
        told = [f"warning: {warning}" for warning in run["warnings"][:MOST_WARNINGS]]
        if (more := len(run["warnings"]) - len(told)) > 0:
            told.append(f"… and {more:,} more warnings; `stepkeep show RUN --json` has them all")
        parts += [Text(), *(Text(inert_line(line), "yellow") for line in told)]
    parts += [Text(inert_line(line), "dim") for line in tree_lines(run)]
    if run["cost"]:
        spent = ", ".join(f"{amount:g} {kind}" for kind, amount in run["cost"].items())
        parts += [Text(), Text(f"cost: {spent}", "dim")]
    if run["output"] is not None:
        parts += [Text(), output_text(run["output"])]
    if hints:
        parts += [Text(), *(Text(inert_line(hint)) for hint in hints)]
    return parts


def tree_lines(run: Mapping[str, Any]) -> list[str]:
    """The parent of a run, and the tree of runs below it."""
    lines: list[str] = []
    if (parent := run.get("parent")) is not None:
        lines += ["", f"child of run {parent['run_id']}" + (", detached" if parent["mode"] == "detached" else "")]
    if (before := run.get("continued_from")) is not None:
        lines += ["", f"continued from run {before}"]
    if (after := run.get("continued_as")) is not None:
        lines += ["", f"continued as run {after['run_id']}, {look(after['state']).words}"]
    if run.get("children"):
        lines += ["", "child runs:", *_below(run["children"], "  ")]
        if run.get("children_left_off"):
            lines.append(f"  and {run['children_left_off']} more; `stepkeep show` of a child has those below it")
        if run["tree_cost"] != run["cost"]:
            spent = ", ".join(f"{amount:g} {kind}" for kind, amount in run["tree_cost"].items())
            lines.append(f"cost with its child runs: {spent}")
    return lines


def _below(children: Sequence[Mapping[str, Any]], indent: str) -> list[str]:
    lines = []
    for child in children:
        shown = look(child["state"])
        detached = ", detached" if child["detached"] else ""
        what = f"{child['step']}: {child['workflow']} v{child['version']} {shown.words}{detached}"
        lines.append(f"{indent}{shown.mark} {what}, run {child['run_id']}")
        lines += _below(child.get("children") or (), indent + "  ")
    return lines


def output_text(output: Any) -> Text:
    """The output of a run. Texts under secret names are hidden; `--json` has them."""
    lines = inert_json(json.dumps(hide_secrets(output), indent=2, ensure_ascii=False)).split("\n")
    shown = [inert_line(line, OUTPUT_WIDTH) for line in lines[:OUTPUT_LINES]]
    if len(lines) > OUTPUT_LINES or any(len(line) > OUTPUT_WIDTH for line in lines):
        shown.append("… (all of it with --json)")
    return Text("\n").join([Text.assemble(("output ", "dim"), shown[0]), *map(Text, shown[1:])])


def what_next(view: Mapping[str, Any], settings: Settings, tokens: Mapping[str, str] | None = None) -> list[str]:
    """One or two lines per open wait; `tokens` has the completion tokens that were issued here, by step."""
    run = view["run"]
    lines: list[str] = []
    for wait in run["waiting_for"]:
        lines += _wait(run["id"], wait, settings, (tokens or {}).get(wait["step"]))
    if run["state"] == "idle" and run.get("starts_at"):
        lines += [f"The run starts at {run['starts_at']}; to start it now:"]
        lines += [f"  {settings.command('start', '--run', run['id'])}"]
    elif run["state"] == "idle":
        lines += ["The run has not been started:", f"  {settings.command('start', '--run', run['id'])}"]
    return lines


def _wait(run: str, wait: Mapping[str, Any], settings: Settings, token: str | None) -> list[str]:
    """What a step waits for, and the commands that go on."""
    step = str(wait["step"])
    until = f" (until {wait['until']})" if wait.get("until") else ""

    def command(word: str, *more: str) -> str:
        return f"  {settings.command(word, run, *more)}"

    match wait["for"]:
        case "approval":
            whose = f" by {wait['of']}" if wait.get("of") else ""
            asked = [f"  {wait['prompt']}"] if wait.get("prompt") else []
            decide = (command("approve", step), command("reject", step))
            return [f"{step} waits for approval{whose}{until}:", *asked, *decide]
        case "sleep":
            return [f"{step} sleeps until {wait['until']}."]
        case "children" if "elements" in wait:
            return [f"{step} waits for its elements{until}: {wait['settled']} of {wait['elements']} have settled."]
        case "children":
            return [f"{step} waits for its child run{until}: {settings.command('explain', wait.get('run_id') or run)}"]
        case "decision":
            choices = [command("decide", step, choice) for choice in ("retry", "skip", "fail")]
            return [f"{step} holds after {wait['attempts']} attempts ({wait['error']}){until}:", *choices]
        case "event":
            event = str(wait.get("event") or "NAME")
            return [f"{step} waits for the event {event}{until}:", command("send", event, "--payload", "{}")]
    complete = command("complete", step, "--token", token or "TOKEN", "--outcome", "Succeeded")
    if token:
        return [f"{step} waits to be completed by hand{until}:", complete]
    lost = f"{command('token', step, '--reason', 'TEXT')}  # if it is lost"
    return [f"{step} waits to be completed by hand with the token that its handler was given{until}:", complete, lost]
