"""Suggests the next commands for a run's view. Pure.

`run` and `show` print them: how to approve a gate, or how to use a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepkeep.cli.settings import Settings


def hints(view: Mapping[str, Any], settings: Settings, tokens: Mapping[str, str] | None = None) -> list[str]:
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
    step = str(wait["step"])
    until = f" (until {wait['until']})" if wait.get("until") else ""
    if wait["for"] == "approval":
        approve, reject = settings.command("approve", run, step), settings.command("reject", run, step)
        whose = f" by {wait['of']}" if wait.get("of") else ""
        asked = [f"  {wait['prompt']}"] if wait.get("prompt") else []
        return [f"{step} waits for approval{whose}{until}:", *asked, f"  {approve}", f"  {reject}"]
    if wait["for"] == "sleep":
        return [f"{step} sleeps until {wait['until']}."]
    if wait["for"] == "children" and "elements" in wait:
        return [f"{step} waits for its elements{until}: {wait['settled']} of {wait['elements']} have settled."]
    if wait["for"] == "children":
        return [f"{step} waits for its child run{until}: {settings.command('explain', wait.get('run_id') or run)}"]
    if wait["for"] == "decision":
        choices = [f"  {settings.command('decide', run, step, choice)}" for choice in ("retry", "skip", "fail")]
        return [f"{step} holds after {wait['attempts']} attempts ({wait['error']}){until}:", *choices]
    if wait["for"] == "event":
        event = str(wait.get("event") or "NAME")
        send = settings.command("send", run, event, "--payload", "{}")
        return [f"{step} waits for the event {event}{until}:", f"  {send}"]
    complete = settings.command("complete", run, step, "--token", token or "TOKEN", "--outcome", "Succeeded")
    if token:
        return [f"{step} waits to be completed by hand{until}:", f"  {complete}"]
    lost = settings.command("token", run, step, "--reason", "TEXT")
    known = "with the token that its handler was given"
    return [f"{step} waits to be completed by hand {known}{until}:", f"  {complete}", f"  {lost}  # if it is lost"]
