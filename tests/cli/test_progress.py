"""What a run's journal comes to while one watches: the fold itself, the plain lines and the moving picture."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from stepkeep.cli import working
from stepkeep.cli.progress import Moving, ProgressLine, RunProgress
from stepkeep.cli.render.lines import remark, step_lines
from stepkeep.kernel.machine.journal import Cause, Entry, Hop
from tests.cli.conftest import Cli
from tests.cli.views import step

SECOND = 1_000_000
NAMES = ["fetch", "convert", "sign-off", "mail"]


def entry(seq: int, *hops: Hop) -> Entry:
    return Entry("default", "r1", seq, seq * SECOND, (Cause("x", "ada"),), hops)


STORY = [
    entry(1, Hop(-1, "created", None, "idle"), *(Hop(no, "planned", None, "pending") for no in range(4))),
    entry(2, Hop(-1, "started", "idle", "queued"), Hop(0, "dependencies_met", "pending", "ready")),
    entry(3, Hop(-1, "progressed", "queued", "running"), Hop(0, "claimed", "ready", "running", attempt=1)),
    entry(
        4,
        Hop(0, "completed", "running", "validating", attempt=1),
        Hop(0, "rules_passed", "validating", "succeeded", attempt=1, took=SECOND // 2),
        Hop(1, "dependencies_met", "pending", "ready"),
        Hop(1, "claimed", "ready", "running", attempt=1, due_at=34 * SECOND),
    ),
    entry(
        5,
        Hop(
            1,
            "retry_scheduled",
            "running",
            "retrying",
            attempt=1,
            due_at=9 * SECOND,
            category="transient",
            error="connection\nrefused",
        ),
    ),
    entry(6, Hop(2, "gate_opened", "pending", "awaiting_approval", due_at=3_606 * SECOND)),
    entry(9, Hop(1, "retry_due", "retrying", "ready"), Hop(1, "claimed", "ready", "running", attempt=2)),
    entry(10, Hop(1, "released", "running", "ready", attempt=2)),
    entry(11, Hop(1, "claimed", "ready", "running", attempt=2)),
    entry(12, Hop(1, "failed", "running", "failed", took=SECOND, category="validation", error="no")),
    entry(
        13,
        Hop(-1, "step_failed", "running", "stopping"),
        Hop(2, "cancelled", "awaiting_approval", "cancelled"),
        Hop(3, "cancelled", "pending", "cancelled"),
        Hop(-1, "stopped_failed", "stopping", "failed", error="no"),
    ),
]


def test_each_thing_that_happens_is_one_line() -> None:
    progress = RunProgress(NAMES.__getitem__, 4)
    lines = [told.line() for one in STORY for told in progress.take(one)]
    assert lines == [
        "00:00:03.000  fetch  running",
        "00:00:04.000  fetch  succeeded in 500ms",
        "00:00:04.000  convert  running",
        "00:00:05.000  convert  retrying in 4.0s: transient: connection refused (attempt 1)",
        "00:00:06.000  sign-off  awaiting approval, 1h at most",
        "00:00:09.000  convert  running, attempt 2",
        "00:00:10.000  convert  handed back",
        "00:00:11.000  convert  running, attempt 2",
        "00:00:12.000  convert  failed in 1.0s: validation: no",
        "00:00:13.000  run  stopping",
        "00:00:13.000  sign-off  cancelled",
        "00:00:13.000  run  failed: no",
    ]
    assert (progress.state, progress.settled, list(progress.active())) == ("failed", 4, [])


def test_a_sleep_says_until_when() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None)
    progress = RunProgress(NAMES.__getitem__, 4, sleeps={1, 2})
    entries = [
        entry(5, Hop(1, "wait_opened", "pending", "awaiting_event", due_at=65 * SECOND)),
        entry(5, Hop(2, "wait_opened", "pending", "awaiting_event", due_at=90_000 * SECOND)),
        entry(5, Hop(3, "wait_opened", "pending", "awaiting_event", due_at=65 * SECOND)),
    ]
    assert [told.text for one in entries for told in progress.take(one)] == [
        "sleeps until 00:01:05Z",
        "sleeps until 1970-01-02 01:00:00Z",
        "awaiting event, 1m at most",
    ]
    moving = Moving(console)
    moving.begin("run", progress, 0)
    with console.capture() as shown:
        console.print(moving.draw(at=6 * SECOND))
    assert "sleeps until 00:01:05Z 1.0s" in shown.get()
    assert "awaiting event 1.0s" in shown.get()


def test_what_goes_on_stays_on_the_screen_with_a_countdown() -> None:
    out = io.StringIO()
    console = Console(file=out, width=100, force_terminal=True, color_system=None)
    progress = RunProgress(NAMES.__getitem__, 4)
    moving = Moving(console)
    moving.begin("run r1, demo v1", progress, 0)
    for one in STORY[:6]:
        moving.show(progress.take(one))
    scrolled = out.getvalue()
    assert "fetch" in scrolled
    assert "sign-off" not in scrolled, "a wait is not over: it stays below"
    drawn = moving.draw(at=6 * SECOND)
    with console.capture() as shown:
        console.print(drawn)
    lines = shown.get().splitlines()
    assert re.match(r"↻ convert\s+retrying in 3.0s  transient: connection refused", lines[0])
    assert re.match(r"◇ sign-off\s+awaiting approval 0ms", lines[1])
    assert lines[2].startswith("▶ running  1/4 steps")


def test_many_active_steps_are_counted_not_listed() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None)
    progress = RunProgress(lambda no: f"s{no}", 5_000)
    progress.take(entry(1, *(Hop(no, "claimed", "ready", "running", attempt=1) for no in range(5_000))))
    moving = Moving(console)
    moving.begin("run", progress, 0)
    with console.capture() as shown:
        console.print(moving.draw(at=SECOND))
    assert "… and 4,988 more" in shown.get()
    assert len(shown.get().splitlines()) == 14


FAR = {"fraction": 0.4, "text": "page 12", "at": "2026-11-03T10:15:04.000Z"}


def test_a_running_step_is_drawn_with_how_far_its_handler_says_it_is() -> None:
    times = (("pending", 0.0), ("ready", 1.0), ("running", 1.0))
    shown = step("fetch", "running", times=times, progress=FAR, worker="w-1", no=0)
    assert remark(shown) == "40 % page 12"
    assert remark({**shown, "progress": {**FAR, "fraction": None}}) == "page 12"
    assert remark({**shown, "progress": {**FAR, "fraction": 1.0, "text": ""}}) == "100 %"
    assert remark({**shown, "progress": None}) == ""
    lines = list(step_lines({"run": {"id": "r1", "workflow": "w", "version": 1}, "step": shown}))
    assert "    progress 40 % page 12 (2026-11-03 10:15:04Z)" in lines


def test_a_run_that_is_watched_tells_how_far_its_handlers_are(
    cli: Cli, home: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler goes on when its words were looked at, however long that takes."""
    monkeypatch.setattr(working, "LOOK_AT_PROGRESS", 0.0)
    seen, real = home / "seen", RunProgress.far

    def far(self: RunProgress, no: int, said: str, at: int) -> ProgressLine | None:
        told = real(self, no, said, at)
        if told is not None:
            seen.touch()
        return told

    monkeypatch.setattr(RunProgress, "far", far)
    code = (
        "import time\nfrom pathlib import Path\nimport stepkeep as sk\n\n"
        "@sk.step('far.tell')\ndef tell(ctx: sk.Context) -> None:\n"
        "    ctx.progress(0.4, 'page 12')\n    while not Path('SEEN').exists():\n        time.sleep(0.01)\n"
    )
    (home / "far.py").write_text(code.replace("SEEN", str(seen)))
    (home / "far.yaml").write_text("workflow: far\ntimeout: 1h\nsteps: [{name: a, uses: far.tell, timeout: 1m}]\n")
    ran = cli("run", "far.yaml", "--app", "far.py", "--db", database_url)
    assert ran.status == 0
    assert (ran.out + ran.err).count("40 % page 12") == 1
