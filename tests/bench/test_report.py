"""The report says what was found, what was not and why, and names no machine."""

from __future__ import annotations

from pathlib import Path

import msgspec

from stepkeep_lab.bench.campaign import Ask, Campaign, Turn, gathered
from stepkeep_lab.bench.machine import machine
from stepkeep_lab.bench.report import as_json, line, page, text, write
from stepkeep_lab.bench.works import DELIVERED

TURNS = (
    Turn(
        subject="stepkeep",
        work="3-step runs",
        store="postgres",
        number=1,
        figures={"steps_per_second": 9_000.0, "runs_per_second": 3_000.0},
    ),
    Turn(
        subject="stepkeep",
        work="3-step runs",
        store="postgres",
        number=2,
        figures={"steps_per_second": 12_000.0, "runs_per_second": 4_000.0},
    ),
    Turn(
        subject="DBOS",
        work="3-step runs",
        store="postgres",
        number=1,
        figures={"steps_per_second": 300.0, "runs_per_second": 100.0},
    ),
    Turn(subject="Restate", work="3-step runs", store="own", number=1, why="absent: it cannot be installed: no npm"),
)


def campaign(*turns: Turn) -> Campaign:
    return Campaign(
        ask=Ask(peers=True),
        took=12.5,
        machine={"processor": "A Processor", "cores": "2"},
        versions={"stepkeep": "0.1.0"},
        measurements=gathered(turns),
    )


def test_turns_of_the_same_work_become_one_measurement() -> None:
    ours, theirs, absent = gathered(TURNS)
    assert ours.median("steps_per_second") == 10_500.0
    assert len(theirs.rounds) == 1
    assert (absent.rounds, absent.why) == ((), "absent: it cannot be installed: no npm")


def test_the_page_has_verdicts_ratios_and_the_reason_for_what_is_missing() -> None:
    said = page(campaign(*TURNS))
    assert "| without waiting, 3-step runs, PostgreSQL, beside DBOS | ≥ 30 × | 35.0 × | met |" in said
    assert "| without waiting, 3-step runs, PostgreSQL, beside Restate | ≥ 8 × | – | not measured |" in said
    assert "100 (ours 35.0 ×)" in said
    assert "| Restate | its own | 3-step runs | absent: it cannot be installed: no npm |" in said


def test_a_peer_that_delivers_its_results_is_compared_with_callers_that_wait() -> None:
    delivered = [
        Turn(subject=subject, work=DELIVERED, store="postgres", number=1, figures={"runs_per_second": runs})
        for subject, runs in (("stepkeep", 1_500.0), ("DBOS", 60.0))
    ]
    said = page(campaign(*TURNS, *delivered))
    assert "| 64 callers get their results, PostgreSQL | ≥ 1,200 runs/s | 1,500 runs/s | met |" in said
    assert "| 64 callers get their results, PostgreSQL, beside DBOS | ≥ 20 × | 25.0 × | met |" in said
    assert "| DBOS | PostgreSQL | 60.0 (ours 25.0 ×) |" in said


def test_the_object_begins_with_verdicts_and_keeps_every_round() -> None:
    said = as_json(campaign(*TURNS))
    assert next(iter(said)) == "targets"
    assert {each["verdict"] for each in said["targets"]} == {"met", "not measured"}
    assert [each["steps_per_second"] for each in said["measurements"][0]["rounds"]] == [9_000.0, 12_000.0]


def test_the_terminal_shows_judged_targets_bars_and_medians() -> None:
    said = text(campaign(*TURNS))
    assert said.startswith("met     without waiting, 3-step runs, PostgreSQL, beside DBOS")
    assert "█" in said
    assert "not measured: absent: it cannot be installed: no npm" in said
    assert "± 14%" in said


def test_a_turn_is_told_with_its_figures_or_its_reason() -> None:
    assert "steps 9,000 /s" in line(TURNS[0])
    assert "no npm" in line(TURNS[3])


def test_absent_peers_are_no_failure_and_our_own_gaps_are() -> None:
    assert campaign(*TURNS).ok
    gap = Turn(subject="stepkeep", work="starts", store="sqlite", number=1, why="the runs did not end")
    assert not campaign(*TURNS, gap).ok


def test_three_files_are_written(tmp_path: Path) -> None:
    write(campaign(*TURNS), tmp_path / "report")
    assert sorted(file.name for file in (tmp_path / "report").iterdir()) == ["bench.json", "bench.md", "bench.svg"]
    said = msgspec.json.decode((tmp_path / "report" / "bench.json").read_bytes())
    assert said["versions"] == {"stepkeep": "0.1.0"}
    assert "(bench.svg)" in (tmp_path / "report" / "bench.md").read_text(encoding="utf-8")


def test_a_machine_is_described_without_its_name() -> None:
    import platform

    described = machine()
    assert set(described) == {"processor", "cores", "memory", "system", "load", "disk"}
    assert platform.node() not in "".join(described.values()).split()
