"""The people of a definition: gates in full, holds and duties, in YAML and in Python, and what is wrong with them."""

from __future__ import annotations

import pytest

import stepkeep as sk
from stepkeep.definition.native.reader import check_text, load_text
from stepkeep.kernel.definition import (
    Approval,
    Covers,
    Distinct,
    FourEyes,
    Incompatible,
    Level,
    OnDeadline,
    RequiresRole,
    Standing,
    encode_definition,
)

SECOND = 1_000_000
HOUR = 3600 * SECOND
HEAD = "workflow: w\ntimeout: 9h\nsteps:\n  - { name: pay, uses: x, timeout: 1s, effect: read }\n"
FULL = """
workflow: w
timeout: 90h
duties:
  - distinct: [first, sign]
  - four_eyes: [first, sign]
  - incompatible: [pay, sign]
  - requires_role: { sign: cfo }
steps:
  - { name: pay, uses: x, timeout: 1s, hold: { prompt: Pay?, approvers: [ann], deadline: 1h, on_deadline: approve } }
  - { name: first, approval: { deadline: 1h } }
  - name: sign
    approval:
      prompt: Sign?
      facts: { paid: "${{ steps.pay.output.sum }}", for: "order ${{ input.id }}" }
      roles: [finance]
      groups: [board]
      approvers: [bea]
      quorum: 2
      reject_on: 2
      not: [requester, "executed:pay", "decided:first", gil]
      standing: now
      covers: shown
      deadline: 24h
      on_deadline: escalate
      escalate: [{ roles: [cfo], deadline: 4h }, { approvers: [eve] }]
      remind: 2h
"""


def messages(text: str) -> list[str]:
    return [problem.message for problem in check_text(text, "w.yaml").problems]


def advice(text: str) -> list[str]:
    report = check_text(text, "w.yaml")
    assert report.definition is not None, report.problems
    return [problem.message for problem in report.warnings]


def gate(terms: str) -> str:
    return f"{HEAD}  - {{ name: sign, approval: {{ deadline: 1h, {terms} }} }}\n"


def test_every_term_of_a_gate_is_kept() -> None:
    definition = load_text(FULL, "w.yaml")
    pay, _, sign = definition.steps
    assert sign.approval == Approval(
        prompt="Sign?",
        facts={"for": "order ${{ input.id }}", "paid": "${{ steps.pay.output.sum }}"},
        roles=("finance",),
        groups=("board",),
        approvers=("bea",),
        quorum=2,
        reject_on=2,
        excluded=("requester", "executed:pay", "decided:first", "gil"),
        standing=Standing.NOW,
        covers=Covers.SHOWN,
        deadline=24 * HOUR,
        on_deadline=OnDeadline.ESCALATE,
        escalate=(Level(roles=("cfo",), deadline=4 * HOUR), Level(approvers=("eve",))),
        remind=2 * HOUR,
    )
    assert pay.hold == Approval(prompt="Pay?", approvers=("ann",), deadline=HOUR, on_deadline=OnDeadline.APPROVE)
    assert definition.duties == (
        Distinct(gates=("first", "sign")),
        FourEyes(gates=("first", "sign")),
        Incompatible(steps=("pay", "sign")),
        RequiresRole(step="sign", role="cfo"),
    )


def test_a_plain_gate_has_the_document_that_it_always_had() -> None:
    """The digests of published definitions do not change."""
    text = encode_definition(load_text(gate("quorum: 1, covers: plan"), "w.yaml")).decode()
    for word in ("groups", "approvers", "reject_on", "facts", "escalate", "remind", "standing", "covers", "duties"):
        assert f'"{word}"' not in text


def test_the_same_gate_is_written_in_python() -> None:
    flow = sk.Workflow(
        "w",
        timeout="90h",
        duties=[
            {"distinct": ["first", "sign"]},
            {"four_eyes": ["first", "sign"]},
            {"incompatible": ["pay", "sign"]},
            {"requires_role": {"sign": "cfo"}},
        ],
    )
    hold = {"prompt": "Pay?", "approvers": ["ann"], "deadline": "1h", "on_deadline": "approve"}
    pay = flow.step("pay", "x", timeout="1s", hold=hold)
    flow.approval("first", deadline="1h")
    flow.approval(
        "sign",
        prompt="Sign?",
        facts={"paid": pay.output.sum, "for": "order ${{ input.id }}"},
        roles=["finance"],
        groups=["board"],
        approvers=["bea"],
        quorum=2,
        reject_on=2,
        not_=["requester", "executed:pay", "decided:first", "gil"],
        standing="now",
        covers="shown",
        deadline="24h",
        on_deadline="escalate",
        escalate=[{"roles": ["cfo"], "deadline": "4h"}, {"approvers": ["eve"]}],
        remind="2h",
    )
    written, yaml = flow.definition(), load_text(FULL, "w.yaml")
    assert written.duties == yaml.duties
    assert [step.hold for step in written.steps] == [step.hold for step in yaml.steps]
    [plain, signed] = [step.approval for step in written.steps if step.approval is not None]
    assert plain == yaml.steps[1].approval
    assert signed is not None
    assert signed.facts == {"for": "order ${{ input.id }}", "paid": '${{ steps["pay"].output.sum }}'}
    assert signed.escalate == yaml.steps[2].approval.escalate  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ('not: ["executed:nothing"]', "There is no step `nothing`."),
        ('not: ["paid:pay"]', "`paid:pay` names no duty."),
        ('not: ["completed:pay"]', "No person has completed `pay`: it is not completed manually."),
        ('not: ["decided:pay"]', "No person has decided `pay`: it is neither an `approval` nor on `hold`."),
        ("escalate: [{deadline: 1h}]", "A level of `escalate` names nobody."),
        ('facts: { x: "${{ steps.later.output }}" }', "There is no step `later`"),
        ('facts: { x: "${{ steps.sign.output }}" }', "Step `sign` reads its own result before there is one."),
        ("remind: 1s", "must be from"),
        ("quorum: 0", "quorum"),
    ],
)
def test_a_gate_that_no_run_could_satisfy_is_refused(terms: str, said: str) -> None:
    found = messages(gate(terms))
    assert any(said in message for message in found), found


@pytest.mark.parametrize(
    ("duty", "said"),
    [
        ("{distinct: [sign, nothing]}", "There is no step `nothing`."),
        ("{distinct: [sign]}", "`distinct` takes two steps or more."),
        ("{four_eyes: [sign, pay]}", "`four_eyes` is about decisions of people, and `pay` takes none."),
        ("{requires_role: {pay: cfo}}", "`requires_role` is about decisions of people, and `pay` takes none."),
        ("{}", "A duty has exactly one kind."),
        ("{distinct: [sign, pay], four_eyes: [sign, pay]}", "A duty has exactly one kind."),
    ],
)
def test_a_duty_that_names_steps_wrongly_is_refused(duty: str, said: str) -> None:
    found = messages(f"duties: [{duty}]\n" + gate("quorum: 1"))
    assert any(said in message for message in found), found


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ("approvers: [ann, bea], quorum: 3", "asks for 3 decisions and names 2 people"),
        ("on_deadline: escalate", "has no further level"),
        ("escalate: [{roles: [cfo]}]", "The levels of `sign` are never reached"),
        ("on_deadline: escalate, escalate: [{roles: [a]}, {roles: [b]}]", "the levels after it are never reached"),
        ("remind: 2h", "ends before its first reminder"),
    ],
)
def test_a_gate_that_does_less_than_it_seems_to_say_is_advised_about(terms: str, said: str) -> None:
    found = advice(gate(terms))
    assert any(said in message for message in found), found


def test_a_gate_in_full_has_no_advice() -> None:
    assert advice(FULL) == []


def test_what_a_deadline_does_without_a_deadline_is_told_where_a_definition_enters() -> None:
    text = f"{HEAD}  - {{ name: sign, approval: {{ on_deadline: approve }} }}\n"
    report = check_text(text, "w.yaml")
    assert [one.message for one in report.ignored] == [
        "`sign` has no `deadline`, so that its `on_deadline: approve` has no effect."
    ]


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ("{ name: sub, workflow: c }, { name: pay, uses: x, timeout: 1s, depends_on: [sub] }", None),
        (
            "{ name: pay, uses: x, timeout: 1s }, { name: sub, workflow: c, depends_on: [pay] }",
            "`pay` does not wait for `sub`, and the people of its child run",
        ),
        (
            "{ name: pay, uses: x, timeout: 1s }, { name: sub, workflow: c, depends_on: [] }",
            "`pay` does not wait for `sub`, and the people of its child run",
        ),
        (
            "{ name: pay, uses: x, timeout: 1s }, { name: sub, workflow: c, map: '${{ [1] }}', depends_on: [] }",
            "`pay` does not wait for `sub`, and the people of its child run",
        ),
        (
            "{ name: sub, workflow: { name: c, detached: true } }, { name: pay, uses: x, timeout: 1s }",
            "nothing waits for its child run",
        ),
        (
            "{ name: sub, sleep: 1s }, { name: pay, uses: x, timeout: 1s }",
            "`incompatible` is about acts of people, and `sub` takes none",
        ),
        (
            "{ name: sub, wait: paid }, { name: pay, uses: x, timeout: 1s }",
            "`incompatible` is about acts of people, and `sub` takes none",
        ),
    ],
)
def test_an_incompatible_duty_that_cannot_be_kept_is_refused(steps: str, said: str | None) -> None:
    found = messages(f"workflow: w\ntimeout: 9h\nduties: [{{ incompatible: [sub, pay] }}]\nsteps: [{steps}]\n")
    assert (found == []) if said is None else any(said in one for one in found), found
