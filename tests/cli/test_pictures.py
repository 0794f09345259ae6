"""Graphs, timelines and tables are compared with pictures that were looked at once and found right.

Set STEPKEEP_WRITE_GOLDEN=1 to write them anew, and look at what changed.
"""

from __future__ import annotations

import io
import os
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console, RenderableType

from stepkeep.cli.render.graph import draw_graph, draw_lanes, fold
from stepkeep.cli.render.report import MOST_WARNINGS, report
from stepkeep.cli.render.tables import runs_table, workers_table
from stepkeep.cli.render.timeline import draw_timeline
from tests.cli.views import at, ran, step, view
from tests.suites import in_proof

GOLDEN = Path(__file__).parent / "golden"


def as_text(picture: RenderableType, width: int = 100) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None, highlight=False).print(picture)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def assert_golden(name: str, text: str) -> None:
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("STEPKEEP_WRITE_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def rolled_back() -> dict[str, Any]:
    failed = {
        "number": 1,
        "fence": 1,
        "state": "failed",
        "started_at": at(1.5),
        "ended_at": at(2),
        "category": "validation",
        "error": "no such plan",
        "cost": None,
    }
    return view(
        ran("create-account", 0.0, 0.5),
        ran("create-workspace", 0.5, 1.5, ("create-account",)),
        ran(
            "start-billing",
            1.5,
            2.0,
            ("create-workspace",),
            "failed",
            category="validation",
            error="no such plan",
            history=[failed],
        ),
        step("send-welcome", "cancelled", ("start-billing",), times=(("pending", 0), ("cancelled", 2))),
        ran("undo:create-account", 2.6, 3.0, phase="undo"),
        ran("undo:create-workspace", 2.0, 2.5, phase="undo"),
        state="rolled_back",
        rollback="complete",
        category="validation",
        error="start-billing: no such plan",
    )


def waiting() -> dict[str, Any]:
    gate = (("pending", 0), ("awaiting_approval", 2))
    return view(
        ran("fetch", 0.0, 1.0),
        step(
            "convert",
            "retrying",
            ("fetch",),
            times=(("pending", 0), ("running", 1), ("retrying", 2), ("running", 3), ("retrying", 4)),
            attempts=2,
            due_at=at(8),
            category="transient",
            error="connection refused",
        ),
        ran("scan", 1.0, 2.0, ("fetch",)),
        step("sign-off", "awaiting_approval", ("scan",), times=gate, until=at(59)),
        step("payment", "awaiting_event", ("fetch",), times=(("pending", 0), ("awaiting_event", 1))),
        step("publish", "pending", ("convert", "sign-off", "payment")),
        state="running",
        waiting_for=[
            {"step": "sign-off", "for": "approval", "until": at(59)},
            {"step": "payment", "for": "event", "event": "payment-received", "until": None},
        ],
    )


def approved() -> dict[str, Any]:
    record = {"decision": "approved", "by": "grace", "at": 0, "comment": "go ahead"}
    return view(
        ran("draft", 0.0, 0.25),
        step(
            "sign-off",
            times=(("pending", 0), ("awaiting_approval", 0.25), ("succeeded", 3.25)),
            after=("draft",),
            record=record,
            kind="approval",
        ),
        ran("mail", 3.25, 4.0, ("sign-off",), "skipped", category="external", error="mailbox is full"),
        output={"published": True},
        warnings=["mail: mailbox is full"],
        cost={"usd": 0.25, "tokens": 1200.0},
        business_key="order-7",
    )


def test_a_run_that_was_rolled_back_shows_its_failure_and_its_hooks_in_the_order_they_ran() -> None:
    assert_golden("rolled_back", as_text(report(rolled_back())))


def test_a_run_that_waits_shows_for_what_and_for_how_long() -> None:
    now = datetime.fromisoformat(at(5))
    assert_golden("waiting", as_text(report(waiting(), now=now, hints=["type this"])))


def test_a_deadline_on_another_day_is_shown_with_its_date() -> None:
    gate = step("sign-off", "awaiting_approval", times=(("awaiting_approval", 0),), until="2026-11-04T10:15:00.000Z")
    now = datetime.fromisoformat(at(1))
    assert "until 2026-11-04 10:15:00Z" in as_text(draw_graph(view(gate), now=now))
    assert "until 10:15:59Z" in as_text(draw_graph(view({**gate, "until": at(59)}), now=now))


def test_a_narrow_terminal_cuts_remarks_to_one_line() -> None:
    steps = [step(f"step-{n}-with-a-long-name", "failed", error="no " * 40, category="unknown") for n in range(3)]
    lines = as_text(draw_graph(view(*steps), width=50), width=50).splitlines()
    assert [line.endswith("…") for line in lines] == [True] * 3
    assert all("failed" in line for line in lines)


def test_a_run_that_succeeded_shows_who_decided_its_warnings_cost_and_output() -> None:
    assert_golden("approved", as_text(report(approved())))


def test_of_thousands_of_warnings_the_first_are_shown_and_the_others_counted() -> None:
    failed = view(ran("each", 0, 1), warnings=[f"each[{number}]: no file" for number in range(5_000)])
    lines = as_text(report(failed)).splitlines()
    assert sum("warning: " in line for line in lines) == MOST_WARNINGS
    assert any("and 4,980 more warnings" in line for line in lines)


def test_branches_that_join_are_drawn_with_lines() -> None:
    diamond = view(
        ran("a", 0, 1),
        ran("b", 1, 2, ("a",)),
        ran("c", 1, 3, ("a",)),
        ran("d", 1, 2, ("a",)),
        ran("e", 3, 4, ("b", "c")),
        ran("f", 4, 5, ("e", "d")),
        ran("lonely", 0, 1),
    )
    assert_golden("branches", as_text(draw_graph(diamond)))


def test_ten_thousand_parallel_steps_fold_but_the_failed_one_stays_visible() -> None:
    shards = [ran(f"shard-{n:04}", 1, 2, ("split",)) for n in range(9_998)]
    shards[17] = ran("shard-0017", 1, 2, ("split",), "failed", category="unknown", error="bad shard")
    run = view(ran("split", 0, 1), *shards, ran("merge", 2, 3, tuple(s["name"] for s in shards)))
    assert_golden("shards", as_text(draw_graph(run)) + as_text(draw_timeline(run)))


def test_a_chain_of_ten_thousand_steps_folds_into_stretches_of_one_state() -> None:
    chain = [ran(f"s{n:04}", n / 1000, (n + 1) / 1000, (f"s{n - 1:04}",) if n else ()) for n in range(5_000)]
    chain.append(step("s5000", "running", ("s4999",), times=(("running", 5.0),)))
    chain += [step(f"s{n:04}", "pending", (f"s{n - 1:04}",)) for n in range(5_001, 10_000)]
    assert_golden("chain", as_text(draw_graph(view(*chain, state="running"))))


@pytest.mark.parametrize("limit", [in_proof(5), 40])
def test_any_graph_of_ten_thousand_steps_fits_and_loses_no_step(limit: int) -> None:
    ladder = [
        step(
            f"s{n}",
            "failed" if n % 7 == 0 else "succeeded",
            tuple(f"s{m}" for m in {n - 1, n - 3, n // 2} if 0 <= m < n),
        )
        for n in range(10_000)
    ]
    nodes = fold(ladder, limit)
    assert len(nodes) <= limit
    assert sum(len(node.members) for node in nodes) == 10_000
    assert {name for node in nodes for name in node.after} <= {node.name for node in nodes}


def test_too_many_lanes_to_follow_are_said_in_words() -> None:
    fan = view(ran("root", 0, 1), *(ran(f"leaf-{n:02}", 1, 2, ("root",), "failed") for n in range(20)))
    text = as_text(draw_graph(fan))
    assert "after root" in text
    assert "├" not in text


def test_every_edge_is_drawn_between_its_ends() -> None:
    """A lane that leads to a node is there on every row between the two."""
    after = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c"), "e": ("a", "d")}
    lines = draw_lanes(after, dict.fromkeys(after, "*"))
    assert [line.node for line in lines if line.node] == list(after)
    assert [line.art for line in lines] == ["*", "├─┬─╮", "* │ │", "│ │ │", "│ * │", "├─╯ │", "*   │", "╰───┤", "    *"]


def test_lists_of_runs_and_workers() -> None:
    runs: list[Any] = [SimpleNamespace(**one["run"]) for one in (rolled_back(), waiting(), approved())]
    offer = {"silent": False, "held": 3, "version": "1.0.0", "queues": None, "handlers": ["mail.send"]}
    offer["usage"] = [SimpleNamespace(busy=0.625)]
    gone = {"silent": True, "held": None, "version": None, "queues": ["slow", ""], "handlers": []}
    gone["usage"] = []
    quiet = {"misfits": [], "only_run": None}
    busy = {"id": "worker:host:1:ab", "state": "busy", "capacity": 4, "capabilities": ["gpu", "eu"]}
    lost = {"id": "worker:host:2:cd", "state": "unresponsive", "capacity": 64, "capabilities": []}
    told = [busy | {"heard_at": at(1)} | offer | quiet, lost | {"heard_at": at(2)} | gone | quiet]
    workers: list[Any] = [SimpleNamespace(**one) for one in told]
    narrow, wide = as_text(runs_table(runs, 80), 80), as_text(runs_table(runs), 140)
    assert_golden("lists", wide + narrow + as_text(workers_table(workers), 140))


def test_a_run_that_has_not_begun_has_no_timeline() -> None:
    text = as_text(report(view(step("a", "pending"), state="idle")))
    assert "█" not in text
    assert "0s" not in text


def test_words_of_others_are_shown_as_they_are() -> None:
    odd = view(ran("a", 0, 1, (), "failed", error="[red]not markup[/red] [/]", category="unknown"), error="[bold]x")
    text = as_text(report(odd))
    assert "[red]not markup[/red] [/]" in text
    assert "[bold]x" in text


def test_a_call_of_a_flow_is_shown_with_what_it_calls() -> None:
    text = as_text(report(view(ran("agent", 0, 2, call=None), ran("agent[0]", 0, 1, call="orders.charge"))))
    assert text.count("agent[0] orders.charge") == 2, "in the graph and in the timeline"


def test_a_plain_key_and_an_author_are_shown_and_secrets_are_not() -> None:
    given = {"key": "o-7", "author": "ada", "idempotency_key": "r:1", "apiKey": "CANARY", "db": {"password": "CANARY"}}
    text = as_text(report(view(ran("a", 0, 1), output={**given, "auth": "CANARY", "access_token": "CANARY"})))
    assert "CANARY" not in text
    for shown in ('"key": "o-7"', '"author": "ada"', '"idempotency_key": "r:1"'):
        assert shown in text
