"""Runs of each dialect under live policies: held, escalated, approved, rejected and denied, on both stores.

The policies are the published examples: seed 003's tiers by environment, and seed 000's cross-domain review. Each run
is told in its own words at the end and judged there, with its canonical log and the replay of its verdicts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.seeds import action_stage, ioa_stage
from tests.seeds.workstream import task, workstream
from tests.store.people import change, membership, principal
from tests.workbench import ACTOR, SECOND, TENANT, Bench, on

from stepkeep.conformance.verify import verify_lines
from stepkeep.conformance.words.replay import replay_lines
from stepkeep.definition.policy import publishable_policy
from stepkeep.dialects import registry
from stepkeep.kernel.definition import Definition
from stepkeep.kernel.errors import NotAllowed
from stepkeep.kernel.machine.states import RunState, StepState
from stepkeep.kernel.people.authority import Caller, MembershipKind
from stepkeep.operations.logs.lines import encode_line
from stepkeep.operations.logs.log import canonical_machines, export_run
from stepkeep.operations.people import policies
from stepkeep.operations.pipeline.expire import sweep

S, HOUR = StepState, 3_600 * SECOND
EXAMPLES = Path(__file__).parents[2] / "examples" / "policies"
ROLES = {"ann": "approver", "bea": "approver", "gil": "governance", "max": "board"}


class Nowhere:
    """Where a document is written that has no file."""

    def problem(self, *said: Any, **more: Any) -> Any:
        raise AssertionError(f"a document is refused: {said}")


def front(dialect: str, document: dict[str, Any]) -> Definition:
    report = registry.dialect(dialect).front.examine(document, Nowhere(), None)
    assert report.definition is not None
    return report.definition


DEFINITIONS: dict[str, Callable[[], Definition]] = {
    "ioa": lambda: ioa_stage.workflow(
        "steps:\n  - {name: a, agent: x, action: do it}\n  - {name: b, agent: x, action: do it, dependsOn: [a]}"
    ),
    "run": lambda: front("run", {"template": "flow", "steps": [{"position": place, "name": "h"} for place in (1, 2)]}),
    "linear": lambda: front("linear", {"workflowType": "flow", "steps": [{"stepType": "h"}, {"stepType": "i"}]}),
    "action": lambda: action_stage.built(action_stage.document(*action_stage.sequence("a", "b"))),
    "workstream": lambda: workstream(task("a"), task("b", "a"), max_duration_seconds=86_400),
}
"""Two steps in a row, written in each dialect."""

ASKED = {"approvers": ["ann"], "deadline": "1h", "on_deadline": "escalate", "escalate": [{"roles": ["board"]}]}
REVIEW = {"policy": "p", "rules": [{"name": "review", "then": "hold", "when": "step.attempt == 1", "approval": ASKED}]}
CLOSED = {"policy": "p", "rules": [{"name": "closed", "then": "deny", "reason": "The books are closed."}]}


async def govern(bench: Bench, policy: Path | dict[str, Any]) -> None:
    """Register people with their roles, and publish a policy."""
    role = MembershipKind.ROLE
    await change(
        bench.store,
        tenant=TENANT,
        principals=[principal(name, tenant=TENANT) for name in ROLES],
        memberships=[
            membership(number, name, role, given, tenant=TENANT)
            for number, (name, given) in enumerate(ROLES.items(), 1)
        ],
    )
    document = publishable_policy(policy)
    await policies.publish_policy(bench.transactor, document, caller=Caller(TENANT, ACTOR))


async def judge(bench: Bench, run_id: str, dialect: str) -> None:
    """The run is legal in its canonical log and in its own words, and its verdicts replay."""
    canonical = [encode_line(line) async for line in export_run(bench.transactor, run_id, tenant=TENANT)]
    assert verify_lines(canonical, canonical_machines()).findings == ()
    told = [encode_line(line) async for line in export_run(bench.transactor, run_id, tenant=TENANT, dialect=dialect)]
    assert replay_lines(told, registry.judged(dialect)).findings == ()
    replayed = await policies.replay_policy(bench.transactor, run_id, tenant=TENANT)
    assert replayed["ok"]
    assert replayed["verdicts"]


async def later(bench: Bench, microseconds: int) -> None:
    bench.store.clock_offset += microseconds
    while await sweep(bench.transactor):
        pass


Act = Callable[[Bench, str, list[str]], Awaitable[RunState]]


async def approved(bench: Bench, run_id: str, names: list[str]) -> RunState:
    """Ann approves both steps."""
    for name in names:
        await bench.approve(run_id, name, by="ann")
        assert await bench.work_off() == 1, name
    return RunState.SUCCEEDED


async def escalated(bench: Bench, run_id: str, names: list[str]) -> RunState:
    """Nobody answers for an hour, then the board may."""
    with pytest.raises(NotAllowed):
        await bench.approve(run_id, by="max")
    await later(bench, HOUR + 1)
    await bench.approve(run_id, by="max")
    await bench.work_off()
    await bench.reject(run_id, names[1], by="ann", comment="not twice")
    return RunState.FAILED


async def rejected(bench: Bench, run_id: str, names: list[str]) -> RunState:
    await bench.reject(run_id, names[0], by="ann", comment="no")
    return RunState.FAILED


@pytest.mark.parametrize("act", [approved, escalated, rejected])
@pytest.mark.parametrize("dialect", DEFINITIONS)
async def test_a_run_of_each_dialect_is_held_and_people_decide(database_url: str, dialect: str, act: Act) -> None:
    async with on(database_url) as bench:
        await govern(bench, REVIEW)
        definition = DEFINITIONS[dialect]()
        run_id = await bench.start(definition)
        assert await bench.work_off() == 0
        assert (await bench.step_states(run_id))[0] is S.AWAITING_APPROVAL
        expected = await act(bench, run_id, [step.name for step in definition.steps])
        assert await bench.state(run_id) is expected
        await judge(bench, run_id, dialect)


@pytest.mark.parametrize("dialect", DEFINITIONS)
async def test_a_run_of_each_dialect_is_denied(database_url: str, dialect: str) -> None:
    async with on(database_url) as bench:
        await govern(bench, CLOSED)
        run_id = await bench.start(DEFINITIONS[dialect]())
        assert await bench.state(run_id) is RunState.FAILED
        found = await bench.store.read_run(TENANT, run_id)
        assert found is not None
        assert "closed of policy revision 1: The books are closed." in str(found.run.error)
        await judge(bench, run_id, dialect)


# -- seed 003: tiers by environment ------------------------------------------------------------------------------------
def tiered(**tiers: str) -> Definition:
    keys = {name: {"executionTierOverride": tier} for name, tier in tiers.items()}
    return action_stage.built(action_stage.document(*action_stage.sequence(*tiers, **keys)))


async def test_in_production_an_assisted_action_waits_for_an_approver_who_did_not_ask(database_url: str) -> None:
    """003 §3.1, execution tiers; `tiers-prod.yaml`."""

    async with on(database_url) as bench:
        await govern(bench, EXAMPLES / "tiers-prod.yaml")
        run_id = await bench.start(tiered(a="Auto", b="Assisted"), actor="ann")
        assert await bench.work_off() == 1
        assert await bench.step_states(run_id) == [S.SUCCEEDED, S.AWAITING_APPROVAL]
        for nobody in ("ann", "gil"):
            with pytest.raises(NotAllowed):
                await bench.approve(run_id, by=nobody)
        await bench.approve(run_id, by="bea")
        assert await bench.work_off() == 1
        assert await bench.state(run_id) is RunState.SUCCEEDED
        await judge(bench, run_id, "action")


@pytest.mark.parametrize(
    ("environment", "tier", "expected"),
    [
        ("prod", "Auto", S.READY),
        ("prod", "Assisted", S.AWAITING_APPROVAL),
        ("prod", "HumanApprove", S.AWAITING_APPROVAL),
        ("prod", "ManualOnly", S.FAILED),
        ("staging", "Assisted", S.READY),
        ("staging", "HumanApprove", S.AWAITING_APPROVAL),
    ],
)
async def test_the_tiers_of_an_environment_decide_about_an_action(
    database_url: str, environment: str, tier: str, expected: StepState
) -> None:
    async with on(database_url) as bench:
        await govern(bench, EXAMPLES / f"tiers-{environment}.yaml")
        run_id = await bench.start(tiered(a=tier))
        assert await bench.step_states(run_id) == [expected]
        await judge(bench, run_id, "action")


async def test_an_approval_in_production_that_nobody_gives_within_a_day_denies_the_action(database_url: str) -> None:
    async with on(database_url) as bench:
        await govern(bench, EXAMPLES / "tiers-prod.yaml")
        run_id = await bench.start(tiered(a="Assisted"))
        await later(bench, 24 * HOUR + 1)
        assert await bench.state(run_id) is RunState.FAILED
        await judge(bench, run_id, "action")


# -- seed 000: cross-domain review -------------------------------------------------------------------------------------
@pytest.mark.parametrize(("approve", "expected"), [(True, RunState.SUCCEEDED), (False, RunState.FAILED)])
async def test_governance_reviews_a_workflow_across_domains(
    database_url: str, approve: bool, expected: RunState
) -> None:
    """000, governance: cross-domain workflows are blocked and escalated; `cross-domain.yaml`."""

    async with on(database_url) as bench:
        await govern(bench, EXAMPLES / "cross-domain.yaml")
        run_id = await bench.start(ioa_stage.workflow("steps:\n  - {name: a, agent: x, action: do it}"))
        assert await bench.step_states(run_id) == [S.AWAITING_APPROVAL]
        with pytest.raises(NotAllowed):
            await bench.approve(run_id, by="ann")
        await (bench.approve if approve else bench.reject)(run_id, by="gil")
        await bench.work_off()
        assert await bench.state(run_id) is expected
        await judge(bench, run_id, "ioa")


async def test_a_workflow_of_one_domain_is_not_reviewed(database_url: str) -> None:
    async with on(database_url) as bench:
        await govern(bench, EXAMPLES / "cross-domain.yaml")
        text = ioa_stage.resource("steps:\n  - {name: a, agent: x, action: do it}").replace("growth, product", "growth")
        run_id = await bench.start(ioa_stage.accepted(ioa_stage.check(text)))
        assert await bench.work_off() == 1
        assert await bench.state(run_id) is RunState.SUCCEEDED
        await judge(bench, run_id, "ioa")
