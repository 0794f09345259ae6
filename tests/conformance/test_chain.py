"""Chains of runs: `continued_as` is tied to the successor by its id, definition, input and creator."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace
from tests.conformance.logs import log_of
from tests.evidence.test_pack import redigest, rewrite, rules, unzipped
from tests.kernel.driver import World, work
from tests.operations.codecs import KeyringCodec

import stepkeep as sk
from stepkeep.conformance.certificate import documents_of
from stepkeep.conformance.chain import Neighbour, continued_in, judge_chain, predecessor_in
from stepkeep.conformance.encoding import compact, parse
from stepkeep.conformance.verify import verify_lines
from stepkeep.evidence.verifier import Pack, verify
from stepkeep.kernel.definition import Flow, StepDefinition, SubWorkflow
from stepkeep.kernel.machine.outcomes import NewCall, Suspended
from stepkeep.kernel.plan import written_template
from stepkeep.operations.logs.log import canonical_machines
from stepkeep_lab.forgeries.seals import resealed

Line = dict[str, Any]
Forge = Callable[[list[Line]], None]
OTHER = "01a1ec11-70ea-7749-8626-ec0acb1a91d8"


@sk.step("chain.add")
def add(number: int) -> int:
    return number + 1


@sk.flow("chain.count")
async def count(ctx: Any, number: int = 0) -> int:
    following = await ctx.step(add, number)
    if following < 3:
        ctx.continue_as_new({"number": following, "zeta": 1.0, "alpha": "ß"})
    return int(following)


class Chain(NamedTuple):
    """Three runs that follow each other, and the evidence pack of the first two."""

    runs: list[str]
    logs: list[list[bytes]]
    beside: list[Neighbour]
    packs: list[bytes]


MADE: list[Chain] = []


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    """Made once: no test changes it."""
    if not MADE:
        with sk.Engine(f"sqlite:///{tmp_path}/chain.db") as engine:
            runs = [engine.run(count, {}).id]
            while (earlier := engine.show(runs[0])["run"].get("continued_from")) is not None:
                runs.insert(0, earlier)
            shown = [engine.show(run)["run"] for run in runs]
            logs = [list(engine.log(run)) for run in runs]
            for run in runs:
                found = engine.certify(run)
                assert found.ok, found.page()
                assert found.chain is not None
                assert found.chain.compared == (2 if run == runs[1] else 1)
            beside = [
                Neighbour(
                    run=run,
                    lines=documents_of(log),
                    input=json.dumps(one["input"]).encode(),
                    output=json.dumps(one["output"]).encode(),
                )
                for run, log, one in zip(runs, logs, shown, strict=True)
            ]
            MADE.append(Chain(runs, logs, beside, [engine.evidence(run) for run in runs[:2]]))
    return MADE[0]


# -- one log alone ---------------------------------------------------------------------------------------------------
def told(lines: list[Line]) -> Line:
    """The call by which the flow continues, as its cause tells it."""
    details = [line["metadata"].get("detail") or {} for line in lines]
    calls = [call for one in details for call in one.get("plan_grown", {}).get("chain.count", {}).get("calls", ())]
    [found] = [call for call in calls if call["kind"] == "continue"]
    return found


def another_run(lines: list[Line]) -> None:
    [end] = [
        line for line in lines if line["metadata"].get("step") == "chain.count[1]" and "digest" in line["metadata"]
    ]
    end["metadata"]["digest"] = hashlib.sha256(compact({"run_id": OTHER}).encode()).hexdigest()


def another_workflow(lines: list[Line]) -> None:
    told(lines)["step"]["child"]["workflow"] = "chain.other"


def another_version(lines: list[Line]) -> None:
    told(lines)["step"]["child"]["version"] = 2


def awaited(lines: list[Line]) -> None:
    del told(lines)["step"]["child"]["detached"]


def not_the_last(lines: list[Line]) -> None:
    """The first call is said to be the one by which the flow continues."""
    call = told(lines)
    first = next(line for line in lines if "plan_grown" in (line["metadata"].get("detail") or {}))
    first["metadata"]["detail"]["plan_grown"]["chain.count"]["calls"][0] |= {"kind": "continue", "name": call["name"]}


@pytest.mark.parametrize("forge", [another_run, another_workflow, another_version, awaited, not_the_last])
def test_a_log_that_continues_as_another_run_is_found_by_itself(chain: Chain, forge: Forge) -> None:
    lines = [parse(line) for line in chain.logs[0]]
    forge(lines)
    forged = [compact(line).encode() for line in resealed(lines, canonical=True)]
    assert "chain" in {finding.code for finding in verify_lines(forged, canonical_machines()).findings}


def test_a_true_log_of_a_chain_has_no_finding(chain: Chain) -> None:
    for log in chain.logs:
        lines = [compact(line).encode() for line in resealed([parse(line) for line in log], canonical=True)]
        assert verify_lines(lines, canonical_machines()).findings == ()


def test_a_flow_beside_another_step_does_not_continue_as_new() -> None:
    world = World(work("flow", growth=Flow(max=5)), work("after", "flow"))
    again = SubWorkflow(workflow=world.plan.definition.name, version=1, detached=True)
    template = written_template(StepDefinition(name="flow", order=0, child=again))
    world.claim("flow")
    call = NewCall(kind="continue", name="again", digest="0", arguments=b"{}", step=template)
    world.report("flow", Suspended(calls=(call,), seen=0))
    found = verify_lines(log_of(world), canonical_machines()).findings
    assert [one.message for one in found if one.code == "chain"] == [
        "step 'flow[0]': the flow continues as new, and is one of 2 steps"
    ]


# -- two runs that follow each other ---------------------------------------------------------------------------------
def changed(one: Neighbour, before: str, after: str) -> Neighbour:
    lines = compact(list(one.lines)).replace(before, after)
    assert lines != compact(list(one.lines))
    return replace(one, lines=json.loads(lines))


def test_two_runs_that_follow_each_other_agree(chain: Chain) -> None:
    first, second, last = chain.beside
    found = judge_chain(second, first, last, asked=last.run, missing=())
    assert found is not None
    assert (found.before, found.after, found.compared, found.findings) == (first.run, last.run, 2, ())
    assert [predecessor_in(one.run, one.lines) for one in chain.beside] == [None, first.run, second.run]
    continued = [continued_in(one.lines) for one in chain.beside]
    assert [one and one.run for one in continued] == [second.run, last.run, None]
    assert judge_chain(replace(first, lines=last.lines[:0]), None, None, asked=None, missing=()) is None


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (lambda first, then: (first, changed(then, f"parent:{first.run}", "ann")), "was created by 'ann'"),
        (lambda first, then: (first, replace(then, input=b'{"number": 7}')), "has another input"),
        (lambda first, then: (first, replace(then, run=OTHER)), "continues as run"),
        (lambda first, then: (replace(first, output=b'{"continued_as": "x"}'), then), "its output does not say"),
        (lambda first, then: (replace(first, output=b"7"), then), "its output does not say"),
        (lambda first, then: (changed(first, '"continue"', '"step"'), then), "by its journal has no successor"),
        (lambda first, then: (ended(first, "cancelled"), then), "by its journal has no successor"),
        (lambda first, then: (first, defined(then)), "is of another definition"),
        (lambda first, then: (first, created(then, 1)), "was created at 1, before"),
    ],
)
def test_a_successor_that_does_not_follow_is_found(chain: Chain, lie: Any, said: str) -> None:
    first, then = lie(*chain.beside[:2])
    found = judge_chain(first, None, then, asked=None if "no successor" in said else chain.runs[1], missing=())
    if found is None:
        found = judge_chain(then, first, None, asked=chain.runs[2], missing=())
    assert found is not None
    assert not found.ok
    assert any(said in one.message for one in found.findings), found.findings


def ended(one: Neighbour, state: str) -> Neighbour:
    lines = json.loads(compact(list(one.lines)))
    last = [line for line in lines if line["event_type"] == "run_state_transition"][-1]
    last["to_state"] = state
    return replace(one, lines=lines)


def defined(one: Neighbour) -> Neighbour:
    lines = json.loads(compact(list(one.lines)))
    lines[0]["metadata"]["detail"]["definition"] = "0" * 64
    return replace(one, lines=lines)


def created(one: Neighbour, at: int) -> Neighbour:
    lines = json.loads(compact(list(one.lines)))
    lines[0]["metadata"]["at"] = at
    return replace(one, lines=lines)


@pytest.mark.parametrize(("asked", "said"), [(None, "none is on record"), (OTHER, f"run '{OTHER}' is on record")])
def test_a_link_that_is_missing_or_names_another_run_is_found(chain: Chain, asked: str | None, said: str) -> None:
    found = judge_chain(chain.beside[0], None, chain.beside[1], asked=asked, missing=())
    assert found is not None
    assert any(said in one.message for one in found.findings), found.findings
    last = judge_chain(chain.beside[2], chain.beside[1], None, asked=OTHER, missing=())
    assert last is not None
    assert ["by its journal it has none" in one.message for one in last.findings] == [True]


def test_a_changed_link_or_a_lost_neighbour_shows_in_the_certificate(tmp_path: Path) -> None:
    import sqlite3

    url = f"sqlite:///{tmp_path}/changed.db"
    with sk.Engine(url) as engine:
        last = engine.run(count, {}).id
        middle = engine.show(last)["run"]["continued_from"]
        first = engine.show(middle)["run"]["continued_from"]
    rows = sqlite3.connect(tmp_path / "changed.db")
    rows.execute("update children set child_id = ? where run_id = ?", (OTHER, middle))
    rows.commit()
    rows.close()
    with sk.Engine(url) as engine:
        assert engine.certify(first).ok
        found = engine.certify(middle)
        assert not found.ok
        assert found.as_json()["chain"]["ok"] is False
        assert "chain: run" in found.page()


def test_a_sealed_chain_conforms_with_the_key_and_without_it(tmp_path: Path) -> None:
    url, codec = f"sqlite:///{tmp_path}/sealed.db", KeyringCodec({"k1": b"0" * 32})
    with sk.Engine(url, payload_codec=codec) as engine:
        middle = engine.show(engine.run(count, {}).id)["run"]["continued_from"]
        found = engine.certify(middle)
        assert found.ok, found.page()
    with sk.Engine(url) as engine:
        found = engine.certify(middle)
        assert found.chain is not None
        assert (found.chain.compared, found.chain.findings) == (2, ())


# -- evidence packs --------------------------------------------------------------------------------------------------
def test_a_pack_says_what_its_verifier_knows_of_the_chain(chain: Chain) -> None:
    first, second = (verify(Pack(unzipped(pack))) for pack in chain.packs)
    assert (first.findings, second.findings) == ([], [])
    assert f"that the flow chain.count continues as run {chain.runs[1]}, by its journal" in first.checked
    assert any(chain.runs[1] in one and "not in this pack" in one for one in first.unchecked)
    assert any(f"run {chain.runs[0]} continues as this one" in one for one in second.unchecked)


def test_a_pack_that_names_another_successor_is_refused_by_name(chain: Chain) -> None:
    def forged(before: bytes, after: bytes) -> list[str]:
        files = dict(unzipped(chain.packs[0]))
        rewrite(files, before, after)
        redigest(files)
        return rules(verify(Pack(files)))

    asked = [compact({"run_id": run}).encode() for run in (chain.runs[1], OTHER)]
    before, after = (hashlib.sha256(one).hexdigest().encode() for one in asked)
    assert "successor_wrong" in forged(before, after)
    named = [compact({"continued_as": run}).encode() for run in (chain.runs[1], OTHER)]
    files = dict(unzipped(chain.packs[0]))
    texts = [json.dumps(one.decode())[1:-1].encode() for one in named]
    assert texts[0] in files["payloads.jsonl"]
    files["payloads.jsonl"] = files["payloads.jsonl"].replace(*texts)
    redigest(files)
    assert "successor_wrong" in rules(verify(Pack(files)))
