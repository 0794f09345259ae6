"""The judge finds what was done to a log, names the line, and has nothing to say about a log that was left alone."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import islice
from random import Random
from typing import Any

import pytest
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.conformance import lies
from tests.conformance.logs import STORIES, cancel, entries_of, log_of, retry, rollback, success, unfinished, written
from tests.kernel.driver import World, work
from tests.kernel.walks import bring_home, live, world_of
from tests.suites import drawn, every, in_proof

from stepkeep.conformance import verify
from stepkeep.conformance.encoding import LONGEST_LINE
from stepkeep.conformance.line import read_line
from stepkeep.conformance.report import Code, Report
from stepkeep.conformance.schema import LINE, SHAPES
from stepkeep.conformance.verify import verify_lines, verify_log
from stepkeep.kernel.machine.journal import RUN_ENTITY, Cause, Entry, Hop
from stepkeep.kernel.machine.states import OnFailure
from stepkeep.operations.logs.log import canonical_machines

MACHINES = canonical_machines()
STATES = sorted({target for name in ("run", "step") for _, _, target in MACHINES[name][0]})
ENDED = [name for name in STORIES if name != "unfinished"]


@pytest.fixture(autouse=True, scope="module")
def _read_once() -> Iterator[None]:
    """Thousands of logs below share most of their lines, and reading one is a pure function of its bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify, "read_line", lru_cache(maxsize=4096)(read_line))
        yield


def judge(lines: Iterable[bytes | str]) -> Report:
    return verify_lines(lines, MACHINES)


def codes(report: Report) -> set[Code]:
    return {finding.code for finding in report.findings}


@pytest.fixture(scope="module", params=STORIES)
def world(request: pytest.FixtureRequest) -> World:
    return STORIES[request.param]()


@pytest.fixture(scope="module")
def log(world: World) -> list[bytes]:
    return log_of(world)


# -- what was left alone ---------------------------------------------------------------------------------------------
def test_a_log_that_was_left_alone_verifies(log: list[bytes]) -> None:
    assert judge(log) == Report((), runs=1, lines=len(log))


def test_the_stories_show_every_kind_of_line_and_most_arrows() -> None:
    """What the mutations below are worth depends on what they are mutations of."""
    documents = [json.loads(line) for story in STORIES.values() for line in log_of(story())]
    kinds = {document["event_type"] for document in documents}
    transitions = {"run_state_transition", "step_state_transition"}
    assert kinds == {"journal_definition", *transitions, "run_note", "journal_head"}
    assert {document["severity"] for document in documents} == {"info", "warning", "error", "critical"}
    assert len({(d["from_state"], d["trigger"]) for d in documents}) > 40


@pytest.mark.parametrize("lives", [60, in_proof(250)])
def test_random_lives_of_random_runs_verify_finished_or_not(lives: int) -> None:
    lines = 0
    for seed in range(lives):
        random = Random(seed)
        world = world_of(random)
        world.watched = False
        live(world, random, 60)
        if seed % 3:
            bring_home(world)
        report = judge(log_of(world))
        assert report.ok, f"seed {seed}: {report.findings[0]}"
        lines += report.lines
    assert lines > 16 * lives


def test_spaces_and_the_order_of_keys_do_not_matter(log: list[bytes]) -> None:
    loose = [json.dumps(dict(reversed(json.loads(line).items())), indent=None) for line in log]
    assert judge(loose).ok


def test_runs_may_be_interleaved_and_are_judged_apart() -> None:
    mine = log_of(success())
    yours = [line.replace(b'"run_id":"r"', b'"run_id":"q"').replace(b'_id":"r', b'_id":"q') for line in log_of(retry())]
    mixed = [line for pair in zip(mine, yours, strict=False) for line in pair]
    report = judge(mixed + mine[len(yours) :] + yours[len(mine) :])
    assert report.runs == 2
    assert {finding.run for finding in report.findings} == {"q"}, "only the run that was given another name is found"
    assert codes(report) == {Code.HASH}


# -- what was tampered with ------------------------------------------------------------------------------------------
def must_find(tampered: Iterable[lies.Tampered], at_least: int, nth: int = 1) -> int:
    tried = 0
    for what, lines, first, last in islice(tampered, 0, None, nth):
        findings = judge(lines).findings
        assert any(first <= finding.line <= last for finding in findings), f"line {first}: {what}: {findings[:3]}"
        tried += 1
    assert tried >= at_least // nth
    return tried


@every(5)
def test_a_changed_character_in_any_field_of_any_line_is_found(log: list[bytes], nth: int) -> None:
    must_find(lies.edited_fields(log), at_least=15 * len(log), nth=nth)


def test_a_dropped_doubled_moved_or_cut_off_line_is_found(log: list[bytes]) -> None:
    must_find(lies.cut_and_shuffled(log), at_least=7 * len(log))


@every(5)
@pytest.mark.parametrize("story", ["cancel", "failure"])
def test_every_field_changed_in_every_way_is_found(story: str, nth: int) -> None:
    must_find(lies.edited_fields(log_of(STORIES[story]()), all_ways=True), at_least=1_500, nth=nth)


@every(7)
def test_every_single_byte_changed_is_found(nth: int) -> None:
    must_find(lies.flipped_bytes(log_of(STORIES["cancel"]())), at_least=5_000, nth=nth)


# -- what was never true, told with every hash in order --------------------------------------------------------------
def test_a_hop_that_is_left_out_is_found(world: World) -> None:
    for what, told in lies.hop_left_out(entries_of(world)):
        if what == "without entry 1: step 2 None → pending (planned)" and world.run.state == "blocked":
            continue  # a plan with one step fewer that nothing has touched yet: a true story of another run
        assert not told or not judge(written(told, world.plan)).ok, what


def test_a_hop_that_is_told_twice_is_found(world: World) -> None:
    for what, told in lies.hop_told_twice(entries_of(world)):
        assert not judge(written(told, world.plan)).ok, what


@pytest.mark.parametrize("most", [50, in_proof(250)])
def test_a_hop_from_or_to_another_state_is_found(world: World, most: int) -> None:
    told = list(lies.hop_bent(entries_of(world), STATES))
    for what, bent in told[:: max(1, len(told) // most)]:
        assert not judge(written(bent, world.plan)).ok, what


def test_fences_attempts_durations_and_times_that_are_off_are_found(world: World) -> None:
    for what, told in lies.numbers_bent(entries_of(world)):
        assert not judge(written(told, world.plan)).ok, what


@pytest.mark.parametrize("story", ENDED)
def test_nothing_follows_the_end_of_a_run(story: str) -> None:
    world = STORIES[story]()
    entries = entries_of(world)
    more = [
        (Hop(RUN_ENTITY, "resumed", str(world.run.state), "running"),),
        (Hop(0, "cancelled", "pending", "cancelled"),),
        (),
    ]
    for hops in more:
        assert Code.TERMINAL in codes(judge(written(lies.entry_added(entries, *hops), world.plan)))


Lie = Callable[[], tuple[list[Entry], World]]


def _found(lie: Lie) -> set[Code]:
    entries, world = lie()
    return codes(judge(written(entries, world.plan)))


def _claim_while_stopping() -> tuple[list[Entry], World]:
    world = World(work("a"), work("b"))
    world.claim("b")
    world.fail("a")
    released = Hop(1, "released", "running", "ready", fence=1, attempt=1, took=0)
    claimed = Hop(1, "claimed", "ready", "running", fence=2, attempt=1, due_at=world.now + 1)
    return lies.entry_added(entries_of(world), released, claimed), world


def _success_with_a_step_open() -> tuple[list[Entry], World]:
    world = World(work("a"), work("b"))
    world.finish("a")
    settled = Hop(RUN_ENTITY, "steps_settled", "running", "validating")
    passed = Hop(RUN_ENTITY, "rules_passed", "validating", "succeeded")
    return lies.entry_added(entries_of(world), settled, passed), world


def _success_with_a_step_failed() -> tuple[list[Entry], World]:
    world = World(work("a", on_failure=OnFailure.CONTINUE))
    world.fail("a")
    entries = entries_of(world)
    last = entries[-1]
    steps = tuple(hop for hop in last.hops if hop.no != RUN_ENTITY)
    settled = Hop(RUN_ENTITY, "steps_settled", "running", "validating")
    passed = Hop(RUN_ENTITY, "rules_passed", "validating", "succeeded")
    return [*entries[:-1], replace(last, hops=(*steps, settled, passed))], world


def _undone_in_the_wrong_order() -> tuple[list[Entry], World]:
    world = rollback()
    first, second = world.no("undo:c"), world.no("undo:b")
    swap = {first: second, second: first}
    told = [
        replace(
            entry,
            hops=tuple(
                replace(hop, no=swap.get(hop.no, hop.no), of=None if hop.of is None else swap.get(hop.of, hop.of))
                for hop in entry.hops
            ),
        )
        for entry in entries_of(world)
    ]
    return told, world


def _two_hooks_at_once() -> tuple[list[Entry], World]:
    world = World(work("a", undo=True), work("b", "a", undo=True), work("c", "b", on_failure=OnFailure.COMPENSATE))
    world.finish("a", "b")
    world.fail("c")
    ready = Hop(world.no("undo:a"), "dependencies_met", "pending", "ready")
    return lies.entry_added(entries_of(world), ready), world


def _undoing_what_was_never_tried() -> tuple[list[Entry], World]:
    world = World(work("a", undo=True), work("b", "a", on_failure=OnFailure.COMPENSATE), work("c", "b", undo=True))
    world.finish("a")
    world.fail("b")
    entries = entries_of(world)
    wrong = {world.no("undo:a"): world.no("undo:c")}
    last = entries[-1]
    hops = tuple(replace(hop, no=wrong.get(hop.no, hop.no)) for hop in last.hops)
    return [*entries[:-1], replace(last, hops=hops)], world


def _rolled_back_though_a_hook_failed() -> tuple[list[Entry], World]:
    world = World(work("a", undo=True), work("b", "a", on_failure=OnFailure.COMPENSATE))
    world.finish("a")
    world.fail("b")
    world.fail("undo:a")
    entries = entries_of(world)
    at, place = lies.find(entries, RUN_ENTITY, "undo_failed")
    return lies.changed(entries, at, place, trigger="undone", target="rolled_back"), world


def _retried_too_early() -> tuple[list[Entry], World]:
    world = retry()
    entries = entries_of(world)
    at, place = lies.find(entries, 0, "retry_scheduled")
    return lies.changed(entries, at, place, due_at=world.now * 2), world


def _lost_before_its_lease_ran_out() -> tuple[list[Entry], World]:
    world = World(work("a"))
    world.lose("a")
    entries = entries_of(world)
    at, place = lies.find(entries, 0, "claimed")
    return lies.changed(entries, at, place, due_at=world.now * 2), world


def _checked_by_nobody() -> tuple[list[Entry], World]:
    world = retry()
    entries = entries_of(world)
    at, _ = lies.find(entries, 1, "rules_passed")
    passed = replace(entries[at].hops[0], took=None)
    del entries[at - 1]
    hops = (passed, *entries[at - 1].hops[1:])
    return [*entries[: at - 1], replace(entries[at - 1], seq=at, hops=hops)], world


def _blocked_though_a_step_can_move() -> tuple[list[Entry], World]:
    world = World(work("a"), work("b"))
    world.finish("a")
    return lies.entry_added(entries_of(world), Hop(RUN_ENTITY, "waiting", "running", "blocked")), world


def _steps_before_their_run() -> tuple[list[Entry], World]:
    world = unfinished()
    first, *rest = entries_of(world)
    created, planned, *more = first.hops
    return [replace(first, hops=(planned, created, *more)), *rest], world


def _blaming_a_step_that_did_not_fail() -> tuple[list[Entry], World]:
    world = World(work("a"), work("b"))
    world.finish("b")
    world.fail("a")
    entries = entries_of(world)
    at, place = lies.find(entries, RUN_ENTITY, "step_failed")
    return lies.changed(entries, at, place, of=1), world


@pytest.mark.parametrize(
    ("lie", "code"),
    [
        (_claim_while_stopping, Code.CLAIM),
        (_success_with_a_step_open, Code.ENDING),
        (_success_with_a_step_failed, Code.ENDING),
        (_undone_in_the_wrong_order, Code.UNDO),
        (_two_hooks_at_once, Code.UNDO),
        (_undoing_what_was_never_tried, Code.UNDO),
        (_rolled_back_though_a_hook_failed, Code.ENDING),
        (_retried_too_early, Code.TIMER),
        (_lost_before_its_lease_ran_out, Code.TIMER),
        (_checked_by_nobody, Code.OUTCOME),
        (_blocked_though_a_step_can_move, Code.ENDING),
        (_steps_before_their_run, Code.CREATION),
        (_blaming_a_step_that_did_not_fail, Code.ENDING),
    ],
)
def test_a_well_told_lie_is_found_by_what_it_means(lie: Lie, code: Code) -> None:
    """Each is legal hop by hop, and every hash is right."""
    found = _found(lie)
    assert code in found
    assert not found & {Code.HASH, Code.ILLEGAL, Code.HEAD}


def test_an_entry_of_another_run_is_found() -> None:
    world = success()
    entries = entries_of(world)
    moved = [*entries[:3], replace(entries[3], run_id="another"), *entries[4:]]
    assert codes(judge(written(moved, world.plan))) >= {Code.GAP, Code.INCOMPLETE}


def test_a_note_must_name_the_state_of_its_run() -> None:
    world = World(work("a"))
    world.tell("early")
    lines = log_of(world)
    note = json.loads(lines[-2])
    assert note["event_type"] == "run_note"
    note["from_state"] = note["to_state"] = "blocked"
    assert codes(judge([*lines[:-2], json.dumps(note), lines[-1]])) == {Code.CONTRADICTION}


def test_a_cause_that_was_struck_out_is_found() -> None:
    """An entry may have causes that moved nothing: they are part of the record too."""
    world = World(work("a"))
    world.tell("early")
    entries = entries_of(world)
    entries[-1] = replace(entries[-1], causes=(Cause("message_arrived", "somebody else"),))
    forged = written(entries, world.plan)
    true = log_of(world)
    assert Code.HEAD in codes(judge([*true[:-2], forged[-2], true[-1]]))
    assert Code.HASH in codes(judge([*true[:-2], forged[-2].replace(forged[-2][-70:], true[-2][-70:]), true[-1]]))


# -- garbage ---------------------------------------------------------------------------------------------------------
GARBAGE: list[bytes | str] = [
    b"",
    b"\x00\xff\xfe",
    b"\xef\xbb\xbf{}",
    "{}".encode("utf-16"),
    b"{",
    b"[]",
    b"null",
    b"true",
    b'"text"',
    b"1",
    b"NaN",
    b'{"timestamp":Infinity}',
    b'{"a":1,"a":2}',
    b'{"a":"\\ud800"}',
    b'{"a":' + b"9" * 10_000 + b"}",
    b'{"a":1e999}',
    b'{"metadata":{"run_id":[]}}',
    b'{"metadata":' * 100_000 + b"1" + b"}" * 100_000,
    b"[" * 1_000_000,
    b" " * (LONGEST_LINE + 1),
    "\ud800",
    '{"a":"\ud800"}',
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_is_a_finding_and_never_an_error(garbage: bytes | str) -> None:
    log = log_of(cancel())
    report = judge([*log[:5], garbage, *log[5:]])
    assert {finding.line for finding in report.findings} == {6}, "and it does not hide or spoil what stands around it"
    assert len(str(report.findings[0])) < 300


@drawn(50, 300, st.lists(st.binary(max_size=60) | st.text(max_size=60), min_size=1, max_size=5))
def test_random_bytes_never_raise(lines: list[bytes | str]) -> None:
    assert not judge(lines).ok


FIELDS = sorted({*LINE, *(field for shape in SHAPES.values() for field in (*shape[2].required, *shape[2].optional))})

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@drawn(33, 200, st.data())
def test_lines_with_anything_in_any_field_never_raise(data: st.DataObject) -> None:
    lines = log_of(STORIES["cancel"]())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(lines) - 1))
        line: dict[str, Any] = json.loads(lines[place])
        holder = (
            data.draw(st.sampled_from([line, line["metadata"]])) if isinstance(line.get("metadata"), dict) else line
        )
        holder[data.draw(st.sampled_from(sorted(holder)))] = data.draw(json_values)
        lines[place] = json.dumps(line).encode()
    judge(lines)


def test_only_so_many_findings_are_kept_and_all_are_counted() -> None:
    report = verify_lines(iter([b"x"] * 500), MACHINES, most=10)
    assert (len(report.findings), report.omitted, report.lines) == (10, 490, 500)
    assert not report.ok


def test_a_file_is_read_line_by_line_and_a_huge_line_is_not_kept() -> None:
    log = log_of(success())
    content = b"\n".join([*log[:4], b"x" * (3 * LONGEST_LINE), *log[4:]])
    report = verify_log(io.BytesIO(content), MACHINES)
    assert {(finding.line, finding.code) for finding in report.findings} == {(5, Code.JSON)}
    assert verify_log(io.BytesIO(b"\n".join(log) + b"\n"), MACHINES).ok


def test_an_empty_log_proves_nothing() -> None:
    assert codes(judge([])) == {Code.EMPTY}
