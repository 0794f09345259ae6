"""Compares what searches and counts say with plain SQL, beside many runs: each agrees, or says what it is.

The runs are those of `pages`: copies of four real ones. A search is followed to its last part. It changes only the
database that it fills. `stepkeep lab truth` calls it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from stepkeep.engine import AsyncEngine
from stepkeep_lab.bench.ground import Ground
from stepkeep_lab.bench.pages import fill
from stepkeep_lab.bench.sql import Sql, open_sql

PAGE = 50
TOLERANCE = 0.2
"""By how much of the truth an estimate may be off, and of a small part by `SMALL` runs more."""
SMALL = 0.002
"""As a share of all runs."""
JOINED = "from runs r join run_details d on d.tenant = r.tenant and d.run_id = r.id where r.tenant = 'default' and "
TEXT = {
    "postgres": "convert_from(d.{}, 'UTF8')",
    "sqlite": "cast(d.{} as text)",
}
LONG_AGO, LATER = datetime(2020, 1, 1, tzinfo=UTC), datetime(2099, 1, 1, tzinfo=UTC)


class Search(msgspec.Struct, frozen=True):
    """What `engine.runs` is asked for, and the condition of SQL that means the same."""

    asked: Mapping[str, Any]
    condition: str


ERRED, INPUT, LABELLED = (
    "lower(r.error) like '%no answer%'",
    "{input} like '%order-2%'",
    '{labels} like \'%"team":"a"%\'',
)
SEARCHES: tuple[Search, ...] = (
    Search({}, "1 = 1"),
    Search({"error": "no answer"}, ERRED),
    Search({"error": "NO Answer"}, ERRED),
    Search({"error": "no such error"}, "1 = 0"),
    Search({"text": "no answer"}, ERRED),
    Search({"text": "Order-2"}, INPUT),
    Search({"text": "order-7"}, "1 = 0"),
    Search({"text": "pages-rare"}, "d.workflow = 'pages-rare'"),
    Search({"labels": {"team": "a"}}, LABELLED),
    Search({"labels": {"team": "b"}}, "1 = 0"),
    Search({"labels": {"team": "a"}, "text": "no answer"}, f"{LABELLED} and {ERRED}"),
    Search({"labels": {"team": "a"}, "error": "answer"}, f"{LABELLED} and {ERRED}"),
    Search({"state": "failed"}, "r.state = 'failed'"),
    Search({"state": "failed", "text": "order-2"}, f"r.state = 'failed' and {INPUT}"),
    Search({"state": "queued", "labels": {"team": "a"}}, f"r.state = 'queued' and {LABELLED}"),
    Search({"state": "succeeded", "labels": {"team": "a"}}, f"r.state = 'succeeded' and {LABELLED}"),
    Search({"state": ["blocked", "failed"], "error": "no answer"}, f"r.state in ('blocked', 'failed') and {ERRED}"),
    Search({"workflow": "pages-rare"}, "d.workflow = 'pages-rare'"),
    Search({"workflow": "pages-work", "error": "no answer"}, f"d.workflow = 'pages-work' and {ERRED}"),
    Search({"workflow": "pages-rare", "text": "order-1"}, "d.workflow = 'pages-rare'"),
    Search({"since": LONG_AGO, "error": "no answer"}, ERRED),
    Search({"since": LATER}, "1 = 0"),
    Search({"until": LONG_AGO, "text": "order-2"}, "1 = 0"),
)


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison: what was said, what is so, and whether that is true. `parts` answers were needed for it."""

    name: str
    said: str
    truth: int
    verdict: str
    is_true: bool
    seconds: float
    parts: int = 1


async def compare(ground: Ground, runs: int, told: Callable[[Line], None] = lambda line: None) -> list[Line]:
    """Fill a database with so many runs, and compare every search and every count."""
    lines: list[Line] = []
    async with AsyncEngine(ground.url, auto_migrate=True) as engine:
        await fill(ground, engine, runs)
        async with open_sql(ground) as sql:
            if ground.server is not None:
                await sql.run("set search_path = stepkeep")
            for search in SEARCHES:
                lines.append(await _search(ground, engine, sql, search))
                told(lines[-1])
            for line in await _counts(engine, sql, runs):
                lines.append(line)
                told(line)
    return lines


async def _search(ground: Ground, engine: AsyncEngine, sql: Sql, search: Search) -> Line:
    text = TEXT[ground.store]
    condition = JOINED + search.condition.replace("{input}", text.format("input")).replace(
        "{labels}", text.format("labels")
    )
    [(truth,)] = await sql.ask(f"select count(*) {condition}")
    newest = [str(one) for (one,) in await sql.ask(f"select r.id {condition} order by r.id desc limit {PAGE}")]
    begun = time.perf_counter()
    first = await engine.runs(**search.asked, limit=PAGE)
    seconds = time.perf_counter() - begun
    shown, total, parts, last = [run["id"] for run in first["runs"]], first["total"], 1, first
    while "looked_at" in last:
        last = await engine.runs(**search.asked, limit=PAGE, before=last["looked_at"]["last"])
        shown, total, parts = shown + [run["id"] for run in last["runs"]], total + last["total"], parts + 1
    least = "" if last["is_complete"] else "at least "
    is_true = shown[:PAGE] == newest and (total == truth if last["is_complete"] else total <= truth)
    at_first = f", first {first['total']:,} of {first['looked_at']['runs']:,}" if parts > 1 else ""
    verdict = "wrong" if not is_true else "says at least" if least else "agrees" if parts == 1 else "agrees, in parts"
    asked = ", ".join(f"{name}={value}" for name, value in search.asked.items()) or "all"
    return Line(
        name=f"runs {asked}",
        said=f"{least}{total:,}{at_first}",
        truth=truth,
        verdict=verdict,
        is_true=is_true,
        seconds=seconds,
        parts=parts,
    )


async def _counts(engine: AsyncEngine, sql: Sql, runs: int) -> list[Line]:
    async def truth(column: str, condition: str = "1 = 1") -> dict[str, int]:
        asked = f"select {column}, count(*) from runs where tenant = 'default' and {condition} group by 1"  # noqa: S608
        return {str(name or "none"): count for name, count in await sql.ask(asked)}

    live, recent = await truth("state", "ended_at is null"), await truth("state")
    failed = await truth("category", "cause is not null")
    [(ready,)] = await sql.ask("select count(*) from steps where ready_at is not null")
    begun = time.perf_counter()
    status = (await engine.status(window="24h"))["status"]
    after_status = time.perf_counter()
    told = (await engine.statistics(window="24h"))["statistics"]
    after_statistics = time.perf_counter()
    shown = await engine.metrics()
    after_metrics = time.perf_counter()
    took = after_status - begun, after_statistics - after_status, after_metrics - after_statistics
    failures = {**told["failures"], "is_complete": True}
    lines = [
        *_lines("status: unfinished", status["runs"]["live"], "by_state", live, took[0], runs),
        *_lines("status: recent", status["runs"]["recent"], "by_state", recent, took[0], runs),
        *_lines("status: failures", status["failures"], "by_category", failed, took[0], runs),
        *_lines("statistics: runs", told["runs"], "by_state", recent, took[1], runs),
        *_lines("statistics: failures", failures, "by_category", failed, took[1], runs),
    ]
    depth = sum(queue["ready"] for queue in status["queues"])
    lines.append(_line("status: ready steps", depth, ready, True, False, took[0], runs))
    gauges = _gauges(shown)
    for state, count in live.items():
        is_rough = gauges.get(f'stepkeep_count_is_rough{{gauge="stepkeep_runs",tenant="{engine.tenant}"}}') == 1
        said = gauges.get(f'stepkeep_runs{{state="{state}",tenant="{engine.tenant}"}}', 0)
        lines.append(_line(f"metrics: runs {state}", int(said), count, True, is_rough, took[2], runs))
    depths = [value for name, value in gauges.items() if name.startswith("stepkeep_queue_depth{")]
    lines.append(_line("metrics: ready steps", int(sum(depths)), ready, True, False, took[2], runs))
    return lines


def _lines(
    name: str, part: Mapping[str, Any], by: str, truth: Mapping[str, int], seconds: float, runs: int
) -> Sequence[Line]:
    is_complete, is_estimate = part["is_complete"], part["is_estimate"]
    total = _line(f"{name}, total", part["total"], sum(truth.values()), is_complete, is_estimate, seconds, runs)
    kinds = sorted({*truth, *part[by]})
    return [
        total,
        *(
            _line(f"{name}, {kind}", part[by].get(kind, 0), truth.get(kind, 0), is_complete, is_estimate, seconds, runs)
            for kind in kinds
        ),
    ]


def _line(name: str, said: int, truth: int, is_complete: bool, is_estimate: bool, seconds: float, runs: int) -> Line:
    off = abs(said - truth)
    if off == 0:
        verdict, is_true = "agrees", True
    elif is_estimate:
        verdict, is_true = f"says about, off by {off / max(1, truth):.1%}", off <= TOLERANCE * truth + SMALL * runs
    elif not is_complete:
        verdict, is_true = "says at least", said < truth
    else:
        verdict, is_true = "wrong", False
    about = "about " if is_estimate else "" if is_complete else "at least "
    return Line(name=name, said=f"{about}{said:,}", truth=truth, verdict=verdict, is_true=is_true, seconds=seconds)


def _gauges(shown: str) -> dict[str, float]:
    """Gauges by name and labels, the labels in order."""
    found = {}
    for name, labels, value in re.findall(r"^(stepkeep_\w+)\{([^}]*)\} (\S+)$", shown, re.MULTILINE):
        ordered = ",".join(sorted(re.findall(r'\w+="[^"]*"', labels)))
        found[f"{name}{{{ordered}}}"] = float(value)
    return found
