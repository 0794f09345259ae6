"""Judges chains of runs: a flow that continues as new, and the run that goes on in its place.

The log of a run is enough for the id of its successor: it follows from the run, the call and its moment, and outputs
have digests. `flows.py` asks for those. `certificate.py` compares the logs of two runs that follow each other. It must
not read a store.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from stepkeep.conformance.report import Code, Finding, quoted

Doc = Mapping[str, Any]

CONTINUE = "continue"
"""The kind of the call by which a flow continues as new."""
PARENT = "parent:"
"""How the actor is named that created a run for another one."""
VERSION = "7"
"""The version of the UUID of a successor. That of a child is 8."""
_sorted = msgspec.json.Encoder(order="sorted").encode
_RUN_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """A run, or one beside it in its chain: the canonical lines of its log, its input, and the output of its flow.

    Input and output are as the user gave them; None if they are sealed, or not kept.
    """

    run: str
    lines: Sequence[Doc]
    input: bytes | None = None
    output: bytes | None = None


class ChainVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The runs before and after a run in its chain, how many of them were compared with it, and what they contradict.

    `missing` are those that are no longer kept. A successor that has not started is in neither.
    """

    before: str | None
    after: str | None
    compared: int
    missing: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return not self.findings


class ContinuedRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a log says about the run as which its flow continues. `arguments` is the digest of its input."""

    run: str
    step: str
    arguments: str | None


def successor_id(at: int, tenant: str, run: str, no: int, seq: int) -> str:
    """The id of a successor: the moment of the call, and a hash of the run, the call and its journal entry.

    >>> successor_id(0, "t", "r", 1, 2)
    '00000000-0000-7457-9821-06c0f485f987'
    """
    drawn = hashlib.sha256("\0".join((tenant, run, str(no), str(seq))).encode()).hexdigest()
    moment = f"{at // 1000:012x}"
    variant = f"{int(drawn[4], 16) & 0x3 | 0x8:x}"
    return f"{moment[:8]}-{moment[8:]}-{VERSION}{drawn[1:4]}-{variant}{drawn[5:8]}-{drawn[8:20]}"


def digest_of_named(key: str, run: str) -> str:
    """The digest of an output that names a run and has nothing else."""
    return hashlib.sha256(json.dumps({key: run}, separators=(",", ":")).encode()).hexdigest()


def digest_of_input(content: bytes) -> str | None:
    """The digest of an input as the record of a call has it; None if it is no JSON."""
    try:
        ordered = _sorted(msgspec.json.decode(content))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return hashlib.sha256(ordered).hexdigest()[:32]


def predecessor_in(run: str, lines: Sequence[Doc]) -> str | None:
    """The run before this one, by its own log; None if it begins a chain, or is a child."""
    actor = str(_created(lines).get("actor"))
    earlier = actor.removeprefix(PARENT)
    is_later = actor != earlier and run[14:15] == VERSION and _RUN_ID.fullmatch(earlier)
    return earlier if is_later else None


def continued_in(lines: Sequence[Doc]) -> ContinuedRun | None:
    """The successor of a run, by its own log; None if it has not succeeded, or its flow did not continue."""
    opened: dict[str, tuple[str, int, Doc]] = {}
    state, flow, by_hand = None, "", set[str]()
    for line in lines:
        said = line["metadata"]
        if line.get("event_type") == "run_state_transition":
            state = line["to_state"]
        detail = said.get("detail")
        grown = detail.get("plan_grown") if isinstance(detail, dict) else None
        for owner, record in grown.items() if isinstance(grown, dict) else ():
            calls = record.get("calls") if isinstance(record, dict) else None
            for call in calls if isinstance(calls, list) else ():
                if isinstance(call, dict) and call.get("kind") == CONTINUE:
                    opened.setdefault(owner, ("", -1, call))
        step = said.get("step")
        owner = str(step).rpartition("[")[0]
        if line["trigger"] == "children_started" and owner in opened and line["from_state"] in ("pending", "ready"):
            call = opened[owner][2]
            run = successor_id(said["at"], said["tenant"], said["run_id"], said["no"], said["seq"])
            opened[owner], flow = (run, said["no"], call), owner
        if line["trigger"] == "operator_completed":
            by_hand.add(str(step))
    if state != "succeeded" or not flow or flow in by_hand:
        return None
    run, _, call = opened[flow]
    given = call.get("arguments")
    return ContinuedRun(run=run, step=flow, arguments=given if isinstance(given, str) else None)


def judge_chain(
    run: Neighbour, before: Neighbour | None, after: Neighbour | None, *, asked: str | None, missing: Sequence[str]
) -> ChainVerdict | None:
    """The verdict about a run in its chain; None if it is in none.

    `before` and `after` are the runs beside it, as far as they are kept. `asked` is the successor that is on record
    for it, started or not.
    """
    earlier, then = predecessor_in(run.run, run.lines), continued_in(run.lines)
    if earlier is None and then is None and asked is None:
        return None
    found = [*_wrong_continuation(then, asked), *_output(run, then)]
    if before is not None:
        found += _contradictions(before, run)
    if after is not None:
        found += _contradictions(run, after)
    return ChainVerdict(
        before=earlier,
        after=None if then is None else then.run,
        compared=(before is not None) + (after is not None),
        missing=tuple(sorted(missing)),
        findings=tuple(Finding(1, Code.CHAIN, run.run, said) for said in found),
    )


def _wrong_continuation(then: ContinuedRun | None, asked: str | None) -> Iterator[str]:
    if then is None and asked is not None:
        yield f"run {quoted(asked)} is on record as its successor, and by its journal it has none"
    elif then is not None and asked is None:
        yield f"run {quoted(then.run)} is its successor by its journal, and none is on record"
    elif then is not None and asked != then.run:
        yield f"run {quoted(asked)} is on record as its successor, and by its journal that is run {quoted(then.run)}"


def _output(run: Neighbour, then: ContinuedRun | None) -> Iterator[str]:
    """The output of a run that continued names the successor."""
    if then is None or run.output is None:
        return
    try:
        told = json.loads(run.output)
    except (ValueError, RecursionError):
        told = None
    if told != {"continued_as": then.run}:
        yield f"its output does not say that it continues as run {then.run}, which follows from its journal"


def _contradictions(before: Neighbour, after: Neighbour) -> Iterator[str]:
    """What two runs that follow each other say of each other, and do not agree about."""
    then, first, began = continued_in(before.lines), _created(before.lines), _created(after.lines)
    if then is None:
        yield f"run {after.run} goes on in the place of run {before.run}, which by its journal has no successor"
        return
    if then.run != after.run:
        yield f"run {before.run} continues as run {quoted(then.run)} by its journal, and run {after.run} goes on"
    if began.get("actor") != f"{PARENT}{before.run}":
        yield f"run {after.run} was created by {quoted(began.get('actor'))}, and it continues run {before.run}"
    mine, own = _detail(first).get("definition"), _detail(began).get("definition")
    if mine != own:
        yield f"run {after.run} is of another definition than run {before.run}, which it continues"
    ended_at, created_at = _ended_at(before.lines), began.get("at")
    if isinstance(ended_at, int) and isinstance(created_at, int) and created_at < ended_at:
        yield f"run {after.run} was created at {created_at}, before run {before.run} ended at {ended_at}"
    if after.input is not None and then.arguments is not None and digest_of_input(after.input) != then.arguments:
        yield f"run {after.run} has another input than the flow of run {before.run} gave"


def _created(lines: Sequence[Doc]) -> Mapping[str, Any]:
    """The fields of the line that creates a run."""
    for line in lines:
        if line.get("event_type") == "run_state_transition":
            found: Mapping[str, Any] = line["metadata"]
            return found
    return {}


def _detail(created: Mapping[str, Any]) -> Mapping[str, Any]:
    detail = created.get("detail")
    return detail if isinstance(detail, dict) else {}


def _ended_at(lines: Sequence[Doc]) -> Any:
    own = [line for line in lines if line.get("event_type") == "run_state_transition"]
    return own[-1]["metadata"].get("at") if own else None
