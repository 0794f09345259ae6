"""Lists open gates for a person: what is asked, what was shown, who has decided, and whether this person may.

It reads pages of open gates in the order of run and step, and the rows of their runs without a lock. It decides
nothing: the answer comes from the checks of the decision (`cases.py`). The engine calls it.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Collection, Iterable
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType, field
from msgspec.structs import replace

from stepkeep.kernel.errors import DefinitionChanged, InvalidInput, NotAllowed, Unreadable
from stepkeep.kernel.machine.rows import Changes, Gate
from stepkeep.kernel.machine.states import StepState
from stepkeep.kernel.people.authority import Authority, Caller
from stepkeep.kernel.people.changes import changes_record
from stepkeep.kernel.people.gates import gate_terms, holding_rule
from stepkeep.kernel.people.votes import standing_of
from stepkeep.operations import validate
from stepkeep.operations.answers import Answer, says
from stepkeep.operations.instants import instant
from stepkeep.operations.people.cases import Case, ballots, opening_in
from stepkeep.operations.pipeline.plans import plan_for
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.runs.run_answers import Ballot, Counted, Needs
from stepkeep.store.records import FIRST_GATE

PAGE = 100
MOST_READ = 1_000
"""Gates that one call looks at; a call that stops there says so and where to go on."""

AT_ONCE = 25
"""Gates whose runs are read together."""

decode_json = msgspec.json.decode


class RequestedChanges(Answer, kw_only=True):
    """A request for changes at a gate."""

    decision: str
    by: str
    at: str | None
    comment: str
    for_: str | UnsetType = field(name="for", default=UNSET)


class Refusal(Answer, kw_only=True):
    """Why a person may not decide."""

    rule: str
    message: str


class OpenGate(Answer, kw_only=True):
    """An open gate: what is asked, by whom, what is shown (`facts` in JSON), who has decided, until when."""

    run_id: str
    step: str
    workflow: str
    asked_by: list[str]
    opened_at: str | None
    until: str | None
    late: Annotated[bool, says("Whether it was not decided in time.")]
    level: int
    prompt: str
    shown: Annotated[dict[str, Any], says("The facts that are shown to those who decide.")] = field(name="facts")
    shown_digest: Annotated[str, says("The digest of all that is shown.")]
    not_: Annotated[list[str], says("Who may not decide.")] = field(name="not")
    quorum: int
    counted: Counted
    needs: Needs
    votes: list[Ballot]
    changes: RequestedChanges | None
    rule: Annotated[str | None, says("The rule that holds the step, if there is one.")]
    reason: Annotated[str | None, says("Why the rule of a policy holds the step, as the policy says.")]
    business_key: str | None
    may_decide: Annotated[bool, says("Whether the caller may approve.")]
    refusal: Annotated[Refusal | None, says("Why the caller may not decide.")]
    command: str | None


class UnreadableGate(Answer, kw_only=True):
    """An open gate of a run that cannot be read."""

    run_id: str
    message: str


class ApprovalList(Answer, kw_only=True):
    """A page of open gates, oldest run first."""

    approvals: list[OpenGate]
    is_complete: Annotated[bool, says("False where there are more.")]
    next: Annotated[str | None, says("The cursor of the next page; null on the last one.")]
    unreadable: list[UnreadableGate] | UnsetType = UNSET


class GateReader(msgspec.Struct, frozen=True, kw_only=True):
    """The person who looks, and what they want to see. `barred` refuses every decision of this caller."""

    caller: Caller
    mine: bool = False
    late: bool = False
    barred: NotAllowed | None = None


async def list_approvals(
    transactor: Transactor, reader: GateReader, *, after: str | None = None, limit: int = 50
) -> ApprovalList:
    """A page of open gates, oldest run first."""
    store, caller = transactor.store, reader.caller
    place = FIRST_GATE if after is None else read_cursor(after)
    now = await store.now()
    authorities = await store.people.read_authorities([caller])
    aside = {one.run_id: one.reason for one in await store.list_quarantined(caller.tenant)}
    found: list[OpenGate] = []
    unreadable: list[UnreadableGate] = []
    cases: dict[str, Case | Exception | None] = {}
    reasons: dict[str, str] = {}
    read, is_complete = 0, False
    while not is_complete and len(found) < limit and read < MOST_READ:
        gates = await store.list_open_gates(caller.tenant, place, PAGE)
        is_complete = len(gates) < PAGE
        for at, gate in enumerate(gates):
            if at % AT_ONCE == 0:
                some = [one for one in gates[at : at + AT_ONCE] if not reader.late or is_late(one, now)]
                new = await _cases(transactor, {one.run_id for one in some} - cases.keys(), caller.tenant, now)
                cases |= new
                await _learn_reasons(transactor, new.values(), reasons, caller.tenant)
            read, place = read + 1, (gate.run_id, gate.no)
            if reader.late and not is_late(gate, now):
                continue
            try:
                told = _view(reader, gate, cases.get(gate.run_id), authorities, aside, now)
            except (Unreadable, DefinitionChanged) as problem:
                unreadable.append(UnreadableGate(run_id=gate.run_id, message=str(problem)))
                continue
            if told is not None and (told.may_decide or not reader.mine):
                found.append(replace(told, reason=reasons.get(told.rule or "")))
            if len(found) == limit:
                is_complete = is_complete and at == len(gates) - 1
                break
    return ApprovalList(
        approvals=found,
        is_complete=is_complete,
        next=None if is_complete else f"{place[0]}/{place[1]}",
        unreadable=unreadable or UNSET,
    )


def read_cursor(text: str) -> tuple[str, int]:
    """The run and the step number behind which a page begins."""
    run, _, number = validate.words("approvals: after", text).partition("/")
    if not number.isascii() or not number.isdigit() or len(number) > 9:
        raise InvalidInput("approvals: after is the `next` of the page before: RUN/NUMBER.")
    return validate.run_id(run), int(number)


def is_late(gate: Gate, now: int) -> bool:
    """Whether a gate was not decided in time: its deadline has passed, or it was escalated."""
    return gate.level > 0 or (gate.due_at is not None and gate.due_at <= now)


async def _cases(
    transactor: Transactor, run_ids: Collection[str], tenant: str, now: int
) -> dict[str, Case | Exception | None]:
    """The runs of some gates, read together. What cannot be read is a value, so that it hides no other run."""

    store, ids = transactor.store, sorted(run_ids)
    involved = await store.read_involved([(tenant, run_id) for run_id in ids])

    async def read(run_id: str) -> Case | None:
        record, steps = await asyncio.gather(store.read_run(tenant, run_id), store.read_steps(tenant, run_id))
        if record is None:
            return None
        plan = await plan_for(transactor, record.run)
        known = {step.no: step for step in steps}
        return Case(record=record, plan=plan, steps=known, involved=involved[tenant, run_id], now=now)

    found = await asyncio.gather(*(read(run_id) for run_id in ids), return_exceptions=True)
    for one in found:
        if isinstance(one, BaseException) and not isinstance(one, Unreadable | DefinitionChanged):
            raise one
    return dict(zip(ids, found, strict=True))  # type: ignore[arg-type]


async def _learn_reasons(
    transactor: Transactor, cases: Iterable[Case | Exception | None], reasons: dict[str, str], tenant: str
) -> None:
    """Add the reason of each rule of a policy that holds a step of these runs, by the words of the rule."""
    for case in cases:
        for step in case.steps.values() if isinstance(case, Case) else ():
            if (words := holding_rule(step)) is None or words in reasons or step.note is None:
                continue
            rule, _, revision = (step.note.permit or "").rpartition("@")
            if revision.isdigit() and (stored := await transactor.store.read_policy(tenant, int(revision))) is not None:
                written = (decode_json(stored.document)).get("rules", ())
                reasons[words] = next((one.get("reason", "") for one in written if one["name"] == rule), "")


def _view(
    reader: GateReader,
    gate: Gate,
    case: Case | Exception | None,
    authorities: dict[Caller, Authority],
    aside: dict[str, str],
    now: int,
) -> OpenGate | None:
    """One open gate as this person sees it; None if it has closed since the page was read."""
    if isinstance(case, Exception):
        raise case
    if case is None:
        return None
    step = case.steps.get(gate.no)
    opening = None if step is None else opening_in(step)
    if step is None or opening is None or step.state is not StepState.AWAITING_APPROVAL:
        return None
    planned = case.plan.of(step)
    terms = gate_terms(step, planned)
    if terms is None:
        return None
    refusal = reader.barred or case.refusal(gate.no, reader.caller, authorities)
    reason = aside.get(gate.run_id)
    if reason is not None:
        refusal = NotAllowed(f"run {gate.run_id} is quarantined: {reason}", "quarantined", reader.caller.actor)
    shown = decode_json(gate.shown)
    standing = standing_of(terms, opening)
    return OpenGate(
        run_id=gate.run_id,
        step=planned.name,
        workflow=case.record.details.workflow,
        asked_by=sorted(case.involved.requesters),
        opened_at=instant(gate.opened_at),
        until=instant(gate.due_at),
        late=is_late(gate, now),
        level=gate.level,
        prompt=terms.prompt,
        shown=(shown.get("facts") or {}) if "gate" in shown else {},
        shown_digest=gate.shown_digest,
        not_=list(terms.excluded),
        quorum=terms.quorum,
        counted=Counted(**standing["counted"]),
        needs=Needs(**standing["needs"]),
        votes=ballots(opening),
        changes=None if opening.changes is None else _changes(opening.changes),
        rule=holding_rule(step),
        reason=None,
        business_key=case.record.details.business_key,
        may_decide=refusal is None,
        refusal=None if refusal is None else Refusal(rule=refusal.rule, message=str(refusal)),
        command=None if refusal is not None else shlex.join(["stepkeep", "approve", gate.run_id, planned.name]),
    )


def _changes(changes: Changes) -> RequestedChanges:
    told = changes_record(changes)
    return RequestedChanges(
        decision=told["decision"],
        by=told["by"],
        at=instant(told["at"]),
        comment=told["comment"],
        for_=told.get("for", UNSET),
    )
