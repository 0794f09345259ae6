"""Replay accepts every run in every dialect's words, and finds whatever was done to such a log, where it was done."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace
from tests.conformance.logs import cancel, failure, log_of, rollback, success, unfinished
from tests.conformance.plants import PLANTS
from tests.conformance.tellings import Line, dialects, encoded, resealed, resealed_whole, stories, told, walks, whole
from tests.conformance.toy.machine import JUDGED as TOY
from tests.kernel.driver import World, sequence, work
from tests.suites import in_proof

from stepkeep.conformance.report import Code, Report
from stepkeep.conformance.schema import timestamp_of
from stepkeep.conformance.words.replay import replay_lines
from stepkeep.dialects.dialect import Invariant, JudgedDialect
from stepkeep.dialects.registry import judged as judged_by_name

SCRIPT = Path(__file__).parents[2] / "scripts" / "validate" / "validate_state_transitions.py"
EVERY = pytest.mark.parametrize("judged", dialects(), ids=lambda judged: judged.name)


def replay(lines: Sequence[Line], judged: JudgedDialect = TOY) -> Report:
    return replay_lines(encoded(lines), judged)


def found(report: Report) -> list[tuple[int, Code]]:
    return [(finding.line, finding.code) for finding in report.findings]


# -- what is legal ---------------------------------------------------------------------------------------------------
@EVERY
def test_any_run_can_be_told_in_the_words_of_every_dialect(judged: JudgedDialect) -> None:
    for world in [*stories(), *walks(100, seed=1)]:
        report = replay(told(world, judged), judged)
        assert report.ok, (judged.name, report.findings[:3])


def test_a_log_of_many_runs_may_be_mixed() -> None:
    logs = [told(story(), TOY) for story in (success, cancel)]
    for number, log in enumerate(logs):
        for line in log:
            line["metadata"]["run_id"] = f"r{number}"
            line["entity_id"] = line["entity_id"].replace("r", f"r{number}", 1)
        resealed(log)
    mixed = [line for pair in zip(*logs, strict=False) for line in pair]
    mixed += [line for log in logs for line in log[min(map(len, logs)) :]]
    report = replay(mixed)
    assert report.ok, report.findings
    assert report.runs == 2


def test_stutters_are_left_out_and_extensions_are_marked() -> None:
    lines = told(cancel(), TOY)
    assert [line["metadata"]["line"] for line in lines] == list(range(1, len(lines) + 1))
    assert all(line["from_state"] != line["to_state"] for line in lines[:-1])
    marked = {(line["from_state"], line["to_state"]) for line in lines if line["metadata"].get("extension")}
    assert marked == {("moving", "returned"), ("travelling", "dropped"), ("planned", "dropped")}


# -- one thing wrong, one finding ------------------------------------------------------------------------------------
def good() -> list[Line]:
    """A toy log: a parcel that was held at a gate, and arrived."""
    return told(success(), TOY, written_in="toy")


def place(lines: Sequence[Line], **wanted: Any) -> int:
    return next(at for at, line in enumerate(lines) if all(line[name] == value for name, value in wanted.items()))


def an_illegal_arrow() -> tuple[list[bytes], int, Code]:
    lines = good()
    at = place(lines, to_state="arrived")
    lines[at]["from_state"] = "waiting"
    back = place(lines, from_state="held", to_state="moving")
    del lines[back], lines[place(lines, to_state="held")], lines[place(lines, to_state="moving")]
    return encoded(resealed(lines)), place(lines, to_state="arrived") + 1, Code.ILLEGAL


def a_broken_invariant() -> tuple[list[bytes], int, Code]:
    lines = good()
    at = place(lines, event_type="leg_state_transition", to_state="done")
    lines[at] |= {"to_state": "broken", "trigger": "broke"}
    return encoded(resealed(lines)), place(lines, to_state="arrived") + 1, Code.INVARIANT


def time_that_runs_backwards() -> tuple[list[bytes], int, Code]:
    lines = good()
    at = lines[8]["metadata"]["at"] - 1_000_000
    lines[9]["metadata"]["at"], lines[9]["timestamp"] = at, timestamp_of(at)
    return encoded(resealed(lines)), 10, Code.TIME


def a_missing_line() -> tuple[list[bytes], int, Code]:
    lines = good()
    del lines[6]
    return encoded(lines), 7, Code.GAP


def a_changed_byte() -> tuple[list[bytes], int, Code]:
    log = encoded(good())
    log[4] = log[4].replace(b'"actor":"ann"', b'"actor":"anm"')
    return log, 5, Code.HASH


ERRORS = (an_illegal_arrow, a_broken_invariant, time_that_runs_backwards, a_missing_line, a_changed_byte)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_each_error_gets_its_own_finding_with_its_line(error: Any) -> None:
    assert replay(good()).ok
    log, line, code = error()
    assert found(replay_lines(log, TOY)) == [(line, code)]


def test_invariants_are_asked_only_of_runs_that_were_written_in_the_dialect() -> None:
    log, line, _ = a_broken_invariant()
    assert found(replay_lines(log, TOY)) == [(line, Code.INVARIANT)]
    elsewhere = [json.loads(raw) for raw in log]
    for one in elsewhere:
        one["metadata"]["written_in"] = "native"
    assert replay(resealed(elsewhere)).ok
    elsewhere[5]["metadata"]["written_in"] = "toy"
    assert found(replay(resealed(elsewhere)))[0] == (6, Code.CONTRADICTION)


def test_a_checker_that_stumbles_over_a_line_is_a_finding_and_no_crash() -> None:
    stumbling = Invariant("it has a colour", "toy §9", lambda say: lambda line: say(line["colour"]))
    report = replay(good(), replace(TOY, invariants=(stumbling,)))
    assert set(found(report)) == {(number, Code.INVARIANT) for number in range(1, len(good()) + 1)}


def test_what_follows_the_closing_line_and_a_log_without_one_are_found() -> None:
    lines = good()
    assert found(replay([*lines, lines[-1]])) == [(len(lines) + 1, Code.AFTER_HEAD)]
    assert found(replay(lines[:-1])) == [(len(lines) - 1, Code.INCOMPLETE)]
    assert found(replay([])) == [(0, Code.EMPTY)]


def test_a_log_in_other_words_is_refused_line_by_line() -> None:
    other = next(judged for judged in dialects() if judged.name != "toy")
    report = replay(told(success(), other))
    assert {code for _, code in found(report)} == {Code.SCHEMA, Code.INCOMPLETE}


@pytest.mark.parametrize("garbage", [b"", b"null", b"[]", b"{", b"\xff", b'{"metadata":{"run_id":"r"}}', b'"' * 9])
def test_garbage_is_a_finding_wherever_it_stands(garbage: bytes) -> None:
    log = encoded(good())
    for at in (0, 5, len(log)):
        numbers = {line for line, _ in found(replay_lines([*log[:at], garbage, *log[at:]], TOY))}
        assert at + 1 in numbers


# -- thousands of logs -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("logs", [500, in_proof(10_000)])
def test_an_error_planted_in_any_of_many_logs_is_found_where_it_is(logs: int) -> None:
    random = Random(4711)
    judges = dialects()
    planted: Counter[str] = Counter()
    seed = 0
    while planted.total() < logs:
        seed += 1
        for world in walks(20, seed=seed):
            judged = judges[planted.total() % len(judges)]
            lines = told(world, judged)
            for plant in PLANTS:
                error = plant(lines, judged, random)
                if error is None:
                    continue
                report = replay_lines(error.log, judged)
                hits = {finding.code for finding in report.findings if finding.line == error.line}
                assert hits & error.codes, (judged.name, plant.__name__, error.line, report.findings[:3])
                planted[plant.__name__] += 1
    assert len(planted) == len(PLANTS)
    assert min(planted.values()) > logs // 35, planted


@EVERY
def test_the_cost_of_a_verdict_grows_with_the_log_and_no_faster(judged: JudgedDialect) -> None:
    """Invariants included: a checker that reads all steps on every line would execute sixteen times as many."""

    def executed(size: int) -> int:
        world = World(*sequence(*(work(f"s{no:04}") for no in range(size))), watched=False)
        world.finish(*(f"s{no:04}" for no in range(size)))
        log = encoded(told(world, judged, written_in=judged.name))
        count = 0

        def trace(frame: object, event: str, given: object) -> Any:
            nonlocal count
            count += event == "line"
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            assert replay_lines(log, judged).ok
        finally:
            sys.settrace(before)
        return count

    assert executed(240) < 5 * executed(60)


# -- plain logs, as other programs write them ------------------------------------------------------------------------
def plain(*arrows: tuple[str, str, str | None, str, str], first: int = 0) -> list[bytes]:
    """Seed 004's schema and no more: (noun, entity, from, to, trigger), a second apart."""
    return [
        json.dumps(
            {
                "timestamp": timestamp_of((first + second) * 1_000_000),
                "event_type": f"{noun}_state_transition",
                "severity": "info",
                "entity_id": entity,
                "from_state": source,
                "to_state": target,
                "trigger": trigger,
                "metadata": {"duration_seconds": 45, "retry_count": 0},
            }
        ).encode()
        for second, (noun, entity, source, target, trigger) in enumerate(arrows)
    ]


LEG = (
    ("leg", "l1", None, "planned", "posted"),
    ("leg", "l1", "planned", "travelling", "departed"),
    ("leg", "l1", "travelling", "done", "finished"),
)


def test_a_plain_log_is_judged_by_the_seeds_own_table() -> None:
    assert replay_lines(plain(*LEG), TOY, sealed=False).ok
    assert replay_lines(plain(*LEG[1:]), TOY, sealed=False).ok, "such logs may leave creation out"
    never = plain(LEG[0], ("leg", "l1", "planned", "dropped", "skipped"))
    assert found(replay_lines(never, TOY, sealed=False)) == [(2, Code.ILLEGAL)], "an extension must say that it is one"
    flagged = [never[0], never[1].replace(b'"retry_count": 0', b'"retry_count": 0, "extension": true')]
    assert replay_lines(flagged, TOY, sealed=False).ok
    assert found(replay_lines(plain(*LEG[2:]), TOY, sealed=False)) == [(1, Code.CREATION)]
    assert found(replay_lines([*plain(*LEG[:2]), *plain(LEG[2])], TOY, sealed=False)) == [(3, Code.TIME)]
    strange = plain(LEG[0], ("leg", "l1", "planned", "sunk", "sank"))
    assert found(replay_lines(strange, TOY, sealed=False)) == [(2, Code.ILLEGAL)]
    no_time = [plain(LEG[0])[0].replace(b"1970-", b"1970 ")]
    assert found(replay_lines(no_time, TOY, sealed=False)) == [(1, Code.SCHEMA)]


def validate(log: Sequence[bytes], tmp_path: Path, *options: str) -> tuple[int, str]:
    file = tmp_path / "transitions.jsonl"
    file.write_bytes(b"".join(line + b"\n" for line in log))
    command = [sys.executable, str(SCRIPT), str(file), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout.replace(str(file), "LOG")


def test_the_script_that_seed_004_names_takes_canonical_dialect_and_plain_logs(tmp_path: Path) -> None:
    workstream = judged_by_name("workstream")
    canonical = log_of(failure())
    assert validate(canonical, tmp_path) == (0, f"LOG: canonical log, {len(canonical)} lines, no findings\n")
    lines = encoded(told(unfinished(), workstream))
    assert validate(lines, tmp_path) == (0, f"LOG: sealed workstream log, {len(lines)} lines, no findings\n")
    status, out = validate([*lines[:4], *lines[5:]], tmp_path)
    assert status == 1
    assert out.startswith("LOG:5: gap: ")
    assert validate(encoded(told(rollback(), judged_by_name("ioa"))), tmp_path)[0] == 0
    task = ("task", "task-ulid-001", "running", "completed", "execution_completed")
    status, out = validate(plain(task), tmp_path)
    assert status == 1
    assert "LOG:1: illegal: task 'task-ulid-001' goes from 'running' to 'completed'" in out
    assert validate([], tmp_path)[0] == 1
    assert validate(lines, tmp_path, "--as", "nonsense")[0] == 2


def test_the_script_compares_a_dialect_log_with_its_canonical_log(tmp_path: Path) -> None:
    """What a dialect hides is found beside the journal: here, who asked for the run."""
    world, journal = success(), tmp_path / "journal.jsonl"
    journal.write_bytes(b"".join(line + b"\n" for line in log_of(world)))
    lines = whole(world, judged_by_name("ioa"))
    assert validate(encoded(lines), tmp_path, "--journal", str(journal))[0] == 0
    for line in lines:
        if line["metadata"].get("event") in ("run_created", "run_started"):
            line["metadata"]["actor"] = "somebody else"
    forged = encoded(resealed_whole(lines, canonical=False))
    assert validate(forged, tmp_path)[0] == 0
    status, out = validate(forged, tmp_path, "--journal", str(journal))
    assert status == 1
    assert "metadata.actor is 'somebody else', but the journal says 'ann'" in out
