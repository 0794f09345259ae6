"""Lists as tables: runs, workers, attempts. Pure, from views to rich tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from stepkeep.cli.render.consoles import Text
from stepkeep.cli.render.lines import shorten
from stepkeep.cli.render.look import clock, look, seconds_between, span, style, words
from stepkeep.operations.remote.services import taken_runs

if TYPE_CHECKING:
    from stepkeep.operations.runs.run_answers import RunSummary
    from stepkeep.operations.runs.status import QueueView, WorkerView

View = Mapping[str, Any]

WIDE = 110
SHORT = 16
FEW_HANDLERS = 6
ENOUGH_OF_AN_ID = 12
"""The end of an id is random; commands take it in place of the whole."""


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns[:-1]:
        table.add_column(column, no_wrap=True)
    table.add_column(columns[-1], overflow="fold")
    return table


def state_text(state: str) -> Text:
    return Text(f"{look(state).mark} {words(state)}", style(state))


def runs_table(runs: Sequence[RunSummary], width: int = WIDE) -> Table:
    """Runs, one line each; where there is little room, the ends of ids stand for them."""
    whole = width >= WIDE
    table = _table("RUN", "WORKFLOW", "STATE", "CREATED", "TOOK", "ABOUT")
    for run in runs:
        fired = run.fired
        about = run.business_key or ("" if fired is None else f"{fired.trigger}/{fired.moment}")
        if run.error:
            about = shorten(f"{about} {run.error}".strip(), 80)
        took = span(seconds_between(run.started_at, run.ended_at))
        workflow = f"{run.workflow} v{run.version}"
        name, created = run.id, clock(run.created_at)
        if not whole:
            name, created = name[-ENOUGH_OF_AN_ID:], created[5:-1]
        table.add_row(name, workflow, state_text(run.state), created, took, Text(about))
    return table


def workers_table(workers: Sequence[WorkerView]) -> Table:
    """Workers, one line each."""
    table = _table("WORKER", "STATE", "HOLDS", "BUSY", "HEARD", "VERSION", "SERVES")
    for worker in workers:
        held = "?" if worker.held is None else str(worker.held)
        table.add_row(
            worker.id,
            Text("silent", "red") if worker.silent else state_text(worker.state),
            f"{held} of {worker.capacity}",
            _busy(worker),
            clock(worker.heard_at),
            worker.version or "",
            Text(_serves(worker)),
        )
    return table


def _busy(worker: WorkerView) -> str:
    """The share of the last minute in which it held an attempt."""
    usage = worker.usage
    return f"{usage[0].busy:.0%}" if usage else ""


def _serves(worker: WorkerView) -> str:
    """Queues, capabilities and handlers of a worker, in a few words."""
    queues = worker.queues
    parts = ["all queues" if queues is None else f"queues {', '.join(name or '(default)' for name in queues)}"]
    parts += [f"capabilities {', '.join(worker.capabilities)}"] if worker.capabilities else []
    named = worker.handlers
    more = f" and {len(named) - FEW_HANDLERS} more" if len(named) > FEW_HANDLERS else ""
    parts.append(f"handlers {', '.join(named[:FEW_HANDLERS])}{more}" if named else "no handlers")
    parts += [taken_runs(worker.only_run)] if worker.only_run is not None else []
    parts += [f"hands back {text}" for text in worker.misfits]
    return "; ".join(parts)


def queues_table(queues: Sequence[QueueView]) -> Table:
    """What waits to be claimed, the oldest first."""
    table = _table("WAITS FOR", "READY", "OLDEST", "WORKERS", "WHY")
    for one in queues:
        ready = f"{one.depth:,}" + ("" if one.is_complete else "+")
        table.add_row(one.needs, ready, span(one.oldest_seconds), str(one.workers), Text(shorten(one.why)))
    return table


def plain_table(rows: Sequence[View]) -> Table:
    """Rows of whatever shape: one column per key that any of them has. Where room is short, long values are folded."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    texts = [[shorten("" if row.get(key) is None else str(row[key]), 160) for key in columns] for row in rows]
    for place, column in enumerate(columns):
        longest = max((len(text[place]) for text in texts), default=0)
        table.add_column(column.upper(), no_wrap=longest <= SHORT, overflow="fold")
    for text in texts:
        table.add_row(*map(Text, text))
    return table


def attempts_table(steps: Sequence[View], *, most: int = 40) -> Table | None:
    """The attempts that did not simply succeed, in the order they ended; None when there are none."""
    told = [(step, attempt) for step in steps for attempt in step["history"] if attempt["state"] != "succeeded"]
    if not told:
        return None
    told.sort(key=lambda pair: (pair[1]["ended_at"] or "", pair[0]["name"]))
    table = _table("STEP", "ATTEMPT", "ENDED", "TOOK", "WORKER", "ERROR")
    for step, attempt in told[:most]:
        error = ": ".join(str(attempt[key]) for key in ("category", "error") if attempt[key])
        took = span(seconds_between(attempt["started_at"], attempt["ended_at"]))
        ended = Text(words(attempt["state"]), style(attempt["state"]))
        worker = attempt.get("worker") or ""
        table.add_row(step["name"], str(attempt["number"]), ended, took, worker, Text(shorten(error)))
    if len(told) > most:
        table.add_row(Text(f"… and {len(told) - most:,} more", "dim"))
    return table
