"""What `stepkeep simulate` predicts is what happens: the same deviations on the real engine end the same way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.dialects.registry import load_file
from stepkeep.kernel.definition import Definition
from stepkeep.simulate.endings import Ending
from stepkeep.simulate.fates import Deviation, Fate, Part
from stepkeep.simulate.report import simulate
from stepkeep.simulate.world import without_jitter
from stepkeep.testing import BenchRun, Workbench

EXAMPLES = Path(__file__).parents[2] / "examples"
INPUTS: dict[str, dict[str, Any]] = {
    "onboarding.yaml": {"email": "a@example.com", "company": "c"},
    "simulate/uncompensated.yaml": {"order_id": 1, "amount": 2},
    "simulate/stuck.yaml": {"employee": "e", "amount": 1},
    "ioa.yaml": {},
    "ioa_deployment.yaml": {},
}
SAYS: dict[Fate, dict[str, Any]] = {
    Fate.FAILS: {"raises": sk.fail("for good")},
    Fate.KEEPS_FAILING: {"raises": sk.StepError("again", category="transient")},
    Fate.TIMES_OUT: {"times_out": True},
    Fate.LOSES_WORKERS: {"loses_worker": True},
}
GOOD = {"ok": True, "account_id": "acc_1", "workspace_id": "w", "doubtful": True}


def paths(file: str) -> list[tuple[str, Ending]]:
    """Every path whose deviations a test can act out: work, hooks and gates."""
    definition = load_file(EXAMPLES / file)
    return [
        (f"{file}: {ending.path}", ending)
        for ending in simulate(definition).endings
        if all(what.place.part in (Part.WORK, Part.GATE) for what in ending.deviations)
    ]


CASES = [case for file in INPUTS for case in paths(file)]


def parameters() -> list[Any]:
    """Every path; with `make test` every fourth of them."""
    return [
        pytest.param(name, ending, id=name, marks=() if at % 4 == 0 else pytest.mark.proof)
        for at, (name, ending) in enumerate(CASES)
    ]


@pytest.mark.parametrize(("name", "ending"), parameters())
def test_the_engine_agrees(name: str, ending: Ending) -> None:
    file = name.partition(":")[0]
    definition = without_jitter(load_file(EXAMPLES / file))
    with Workbench(handlers=sk.Registry()) as bench:
        bench.replace_others(returns=GOOD)
        for what in ending.deviations:
            if what.place.part is Part.WORK:
                bench.replace(step=_place(definition, what), **SAYS[what.fate])
        gates = [gate for step in definition.steps if (gate := step.approval or step.hold) is not None]
        bench.person("approver", roles=sorted({role for gate in gates for role in gate.roles}))
        before = bench.now
        run = bench.run(definition, INPUTS[file])
        _answer(bench, run, ending)
        states = {step["name"]: step["state"] for step in run.view["steps"] if step["phase"] == "main"}
        names = [step.name for step in sorted(definition.steps, key=lambda step: (step.order, step.name))]
        assert [states[name] for name in names] == list(ending.states)
        assert (run.state, run.view["run"]["rollback"]) == (ending.state, ending.rollback)
        assert run.undone == list(ending.undone)
        took = (bench.now - before).total_seconds()
        assert not ending.ended or took == pytest.approx(ending.elapsed / 1_000_000, abs=0.01)


def _place(definition: Definition, what: Deviation) -> str:
    number = what.place.key
    assert isinstance(number, int)
    return f"undo:{what.step}" if number >= len(definition.steps) else str(what.step)


def _answer(bench: Workbench, run: BenchRun, ending: Ending) -> None:
    """Be the people of this path."""
    gates = {what.step: what.fate for what in ending.deviations if what.place.part is Part.GATE}
    for _ in range(10):
        for gate in run.waits:
            match gates.get(gate):
                case Fate.REJECTED:
                    run.reject(gate)
                case Fate.EXPIRES:
                    until = run.step(gate)["due_at"]
                    if until is None:
                        return
                    deadline = next(step.approval for step in _steps(run) if step.name == gate)
                    assert deadline is not None
                    assert deadline.deadline is not None
                    bench.advance(f"{deadline.deadline // 1_000_000}s")
                case _:
                    run.approve(gate)


def _steps(run: BenchRun) -> Any:
    return run._plan().definition.steps
