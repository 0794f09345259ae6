"""`stepkeep rollback-preview`: what a cancel with compensation would undo, and what it cannot. Reads only."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from stepkeep.cli.arguments import RunId
from stepkeep.cli.printer import answer, say
from stepkeep.cli.session import find_run, open_engine
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import FAILED, SUCCEEDED


def rollback_preview(settings: Settings, run: RunId) -> int:
    """Say what `cancel --compensate` would undo now, in which order, and what it cannot. Exit status 1 if not all."""
    found = asyncio.run(_preview(settings, run))
    if settings.json:
        answer({"rollback": found})
    else:
        for line in _lines(found, settings):
            say(line)
    return SUCCEEDED if found["possible"] and not found["cannot_undo"] else FAILED


async def _preview(settings: Settings, run: str) -> dict[str, Any]:
    async with open_engine(settings, operation="rollback_preview") as engine:
        return await engine.rollback_preview(await find_run(engine, run))


def _lines(found: dict[str, Any], settings: Settings) -> Iterator[str]:
    if not found["possible"]:
        yield found["refusal"]
        return
    if not found["undo"]:
        yield "nothing would be undone"
    for one in found["undo"]:
        yield f"{one['position']}. {'  ' * one['level']}{one['step']} is undone by {one['undo']}{_below(one)}"
    for one in found["cannot_undo"]:
        yield f"{one['step']}{_below(one)} stays: {one['says']}"
    for one in found["running"]:
        yield f"{one['step']}{_below(one)} runs now: {one['says']}"
    yield f"the run would be {found['ends'].replace('_', ' ')}"
    yield f"Do it: {settings.command('cancel', found['run_id'], '--compensate')}"


def _below(one: dict[str, Any]) -> str:
    """Which run a step belongs to, if it is not the one that was asked about."""
    return f" in run {one['run_id']}" if one["level"] else ""
