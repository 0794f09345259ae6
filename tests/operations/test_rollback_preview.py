"""The preview of a rollback on both stores: it says what the cancel then does, and changes nothing."""

from __future__ import annotations

from pathlib import Path

import stepkeep as sk

DOCUMENT = """
workflow: trip
timeout: 1h
steps:
  - {name: look, uses: preview.act, effect: read, timeout: 5s, with: {name: look}}
  - {name: book, uses: preview.act, timeout: 5s, with: {name: book}, undo: {uses: preview.act, with: {name: unbook}}}
  - {name: tell, uses: preview.act, effect: irreversible, timeout: 5s, with: {name: tell}}
  - {name: pay, uses: preview.act, timeout: 5s, with: {name: pay}, undo: {uses: preview.act, with: {name: refund}}}
  - {name: sign, approval: {deadline: 1h}}
"""
DONE: list[str] = []


@sk.step("preview.act")
def act(name: str) -> None:
    DONE.append(name)


def blocked(engine: sk.Engine, home: Path) -> str:
    """A run that waits at its gate."""
    (home / "trip.yaml").write_text(DOCUMENT)
    DONE.clear()
    run = engine.start(str(home / "trip.yaml")).run_id
    with engine.start_worker():
        assert engine.wait(run, seconds=30, until_blocked=True).state is sk.RunState.BLOCKED
    return run


def test_what_it_says_is_what_the_cancel_does(database_url: str, tmp_path: Path) -> None:
    with sk.open(database_url) as engine:
        run = blocked(engine, tmp_path)
        before = engine.show(run)
        said = engine.rollback_preview(run)
        assert engine.show(run)["run"] == before["run"]
        assert [(one["position"], one["step"]) for one in said["undo"]] == [(1, "pay"), (2, "book")]
        assert [(one["step"], one["reason"]) for one in said["cannot_undo"]] == [("tell", "no_undo")]
        assert (said["possible"], said["rollback"], said["ends"]) == (True, "partial", "failed")
        engine.cancel(run, compensate=True)
        under_way = engine.rollback_preview(run)
        assert [one["step"] for one in under_way["undo"]] == ["pay", "book"]
        with engine.start_worker():
            ended = engine.wait(run, seconds=30)
        assert str(ended.state) == said["ends"]
        assert DONE == ["look", "book", "tell", "pay", "refund", "unbook"]
        assert engine.show(run)["run"]["rollback"] == said["rollback"]
        over = engine.rollback_preview(run)
        assert (over["possible"], over["undo"]) == (False, [])
        assert "already ended" in over["refusal"]


def test_a_run_that_was_cancelled_has_no_rollback_before_it(database_url: str, tmp_path: Path) -> None:
    with sk.open(database_url) as engine:
        run = blocked(engine, tmp_path)
        engine.cancel(run)
        over = engine.rollback_preview(run)
        assert (over["possible"], over["undo"], over["ends"]) == (False, [], "cancelled")
        assert "is cancelled already" in over["refusal"]
