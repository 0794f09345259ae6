"""The answers about runs and steps: what `show`, `runs`, `approvals` and results tell, as frozen values.

It has no logic. Attributes are the names of JSON, but for the attempts of a step: `step.attempts` is the list
(`history` in JSON), `step.attempt_count` their number (`attempts` in JSON). `views`, `family`, `continued`, `progress`
and `codes` make them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, UnsetType, field

from stepkeep.kernel.composition.continuation import ContinuationKind
from stepkeep.kernel.machine.rows import ChildMode
from stepkeep.kernel.machine.states import AttemptState, Phase, Rollback, RunState, StepState
from stepkeep.operations.answers import Answer, says
from stepkeep.operations.continuation.quarantine import QuarantineView


class Fired(Answer, kw_only=True):
    """The firing that started a run."""

    trigger: str
    moment: str
    backfill: str | None


class JournalEnd(Answer, kw_only=True):
    """The last entry of a journal: its number and its hash."""

    seq: int
    head: str


class RunSummary(Answer, kw_only=True):
    """A run in a list."""

    id: str
    workflow: str
    version: int
    dialect: str
    state: RunState
    rollback: Rollback
    category: str | None
    error: str | None
    priority: int
    business_key: str | None
    correlation_id: str | None
    created_by: str
    created_at: str | None
    starts_at: str | None
    started_at: str | None
    ended_at: str | None
    rerun_of: str | None
    asked_before: Annotated[list[str], says("Who else caused the run.")]
    labels: dict[str, str]
    journal: JournalEnd
    quarantined: QuarantineView | None
    fired: Fired | None


class UnreadableRun(Answer, kw_only=True):
    """A run whose rows are damaged."""

    id: str | None
    state: str | None
    table: str
    row: str
    reason: str
    message: str


class LookedAt(Answer, kw_only=True):
    """What a search looked at that ended before the last run."""

    runs: int
    of: Annotated[int | None, says("How many there are to look at.")]
    of_at_least: Annotated[bool, says("Whether that is a lower bound.")]
    back_to: Annotated[str | None, says("The start of the last one.")]
    last: str | None


class RunList(Answer, kw_only=True):
    """A page of runs, newest first."""

    runs: list[RunSummary]
    total: Annotated[int, says("How many match, from `cursor` on.")]
    is_complete: Annotated[bool, says("False where there may be more than `total`.")]
    next: Annotated[str | None, says("The cursor of the next page; null on the last one.")]
    looked_at: Annotated[
        LookedAt | UnsetType, says("Of a search that ended before the last run; absent where it looked at all.")
    ] = UNSET
    unreadable: Annotated[list[UnreadableRun] | UnsetType, says("Runs whose rows are damaged.")] = UNSET


class Ballot(Answer, kw_only=True):
    """The decision of one person, which a gate has counted."""

    by: str
    decision: Literal["approved", "rejected"]
    at: str
    for_: str | UnsetType = field(name="for", default=UNSET)


class Counted(Answer, kw_only=True):
    """How many have decided."""

    approved: int
    rejected: int


class Needs(Answer, kw_only=True):
    """What an open gate still needs."""

    approved: Annotated[int, says("How many more approvals.")]
    of: Annotated[str, says("Of whom.")]


class Waiting(Answer, kw_only=True):
    """What a run waits for at one step, and until when. Of a gate: who may decide; of children: how many ended."""

    step: str
    for_: str = field(name="for")
    attempts: int | UnsetType = UNSET
    category: str | UnsetType | None = UNSET
    error: str | UnsetType | None = UNSET
    elements: int | UnsetType = UNSET
    settled: int | UnsetType = UNSET
    failed: int | UnsetType = UNSET
    run_id: str | UnsetType = UNSET
    event: str | UnsetType = UNSET
    prompt: str | UnsetType = UNSET
    roles: list[str] | UnsetType = UNSET
    groups: list[str] | UnsetType = UNSET
    approvers: list[str] | UnsetType = UNSET
    of: Annotated[str | UnsetType, says("The people in words.")] = UNSET
    not_: list[str] | UnsetType = field(name="not", default=UNSET)
    level: int | UnsetType = UNSET
    quorum: int | UnsetType = UNSET
    votes: list[Ballot] | UnsetType = UNSET
    rule: str | UnsetType = UNSET
    until: str | None


class Continues(Answer, kw_only=True):
    """The run that a run repeats or continues, how, from which step, and which steps it adopted."""

    run: str
    as_: ContinuationKind = field(name="as")
    from_: str | None = field(name="from")
    adopted: list[str]


class Parent(Answer, kw_only=True):
    """The step that started a run as a child."""

    run_id: str
    no: int
    activation: int
    mode: ChildMode


class ChildRun(Answer, kw_only=True):
    """A child run, with those below it."""

    step: str
    run_id: str
    workflow: str
    version: int
    detached: bool
    state: str
    error: str | None
    undoes: Annotated[str | UnsetType, says("The earlier child that it rolls back.")] = UNSET
    is_deleted: bool | UnsetType = UNSET
    cost: dict[str, float] | UnsetType = UNSET
    children: list[ChildRun] | UnsetType = UNSET


class Successor(Answer, kw_only=True):
    """The run as which a flow continued as new."""

    run_id: str
    state: str
    error: str | None


class RunDetail(RunSummary, kw_only=True):
    """A run with its input, output, cost and what it waits for."""

    input: Any
    output: Any
    cost: Annotated[dict[str, float], says("What it cost, by kind: `usd`, `tokens`, …")]
    warnings: list[str]
    waiting_for: list[Waiting]
    continued_from: Annotated[str | UnsetType, says("The run whose flow continued as this one.")] = UNSET
    parent: Annotated[Parent | UnsetType, says("The run and step that started it as a child.")] = UNSET
    children: Annotated[list[ChildRun] | UnsetType, says("Its child runs, with theirs.")] = UNSET
    continued_as: Annotated[Successor | UnsetType, says("The run as which its flow continued as new.")] = UNSET
    tree_cost: Annotated[dict[str, float] | UnsetType, says("What it and all runs below it cost.")] = UNSET
    children_left_off: Annotated[int | UnsetType, says("How many more runs its tree has.")] = UNSET
    continues: Annotated[Continues | None, says("The run that it repeats or continues.")]
    continued_by: Annotated[list[str], says("Runs that repeat or continue it, newest first.")]
    waits_for_slot: Annotated[
        str | None, says("Why a queued run has no execution slot yet; null if it waits for none.")
    ] = None


class CodeOf(Answer, kw_only=True):
    """The code that ran an attempt, as its worker published it."""

    handler: str
    digest: str | None
    module: str | None
    version: str | None


class AttemptDetail(Answer, kw_only=True):
    """An attempt that has ended. `evidence` is there where one step is shown."""

    number: int
    fence: int
    worker: str | None
    state: AttemptState
    started_at: str | None
    ended_at: str | None
    category: str | None
    error: str | None
    in_doubt: bool
    cost: dict[str, float] | None
    code: CodeOf | None
    evidence: Annotated[dict[str, Any] | UnsetType | None, says("Inputs given, traceback, log lines.")] = UNSET


class Entered(Answer, kw_only=True):
    """A state, and when a step entered it."""

    state: str
    at: str | None


class Adopted(Answer, kw_only=True):
    """Where the result of an adopted step comes from; `undo`: a rollback of this run undoes it."""

    run: str
    step: str
    undo: bool


class Skip(Answer, kw_only=True):
    """Why a step was skipped. `of` is the step whose end caused it; `condition` is the text of a false condition."""

    reason: str
    text: str
    of: str | None = None
    condition: str | None = None


class Progress(Answer, kw_only=True):
    """How far a running step is, as its handler says."""

    fraction: float | None
    text: str
    at: str | None


class CheckpointView(Answer, kw_only=True):
    """What the handler of a step recorded while it ran."""

    name: str
    value: Any
    fence: int
    at: str | None


class StepDetail(Answer, kw_only=True):
    """A step, and all of its attempts that have ended."""

    no: int
    name: str
    phase: Phase
    kind: str
    call: str | None
    state: StepState
    attempt_count: Annotated[int, says("How many attempts there were, the running one included.")] = field(
        name="attempts"
    )
    losses: int
    category: str | None
    error: str | None
    in_doubt: bool
    output: Any
    depends_on: list[str]
    started_at: str | None
    ended_at: str | None
    due_at: str | None
    record: Annotated[dict[str, Any] | None, says("What is on record about the decision, message or completion.")]
    adopted: Adopted | None
    cost: dict[str, float]
    worker: str | None
    attempts: Annotated[list[AttemptDetail], says("The attempts that have ended.")] = field(name="history")
    states: list[Entered]
    case: Annotated[str | UnsetType, says("The case that a choice took.")] = UNSET
    skipped: Skip | None
    until: Annotated[str | None, says("When a wait ends by itself.")]
    choices: Annotated[list[str], says("What a person may decide about it now.")]
    progress: Progress | None
    checkpoints: Annotated[list[CheckpointView], says("The newest 100, in the order of recording.")]


class RunView(Answer, kw_only=True):
    """A run and its steps."""

    run: RunDetail
    steps: list[StepDetail]


class StepView(Answer, kw_only=True):
    """A step with the evidence of its attempts, and its run."""

    run: RunDetail
    step: StepDetail


class PastEntry(Answer, kw_only=True):
    """The entry of the journal after which a run is shown, its cause, and the number of the last entry."""

    seq: int
    time: str | None
    event: str
    actor: str
    last_seq: int


class PastRunDetail(Answer, kw_only=True):
    """A run as it stood. `input_unknown` says why its input cannot be shown."""

    id: str
    workflow: str
    version: int
    state: RunState
    since: str | None
    category: str | None
    error: str | None
    input: Any
    input_unknown: str | UnsetType = UNSET


class PastStepDetail(Answer, kw_only=True):
    """A step as it stood. `output_unknown` says why its output cannot be shown."""

    no: int
    name: str
    phase: str
    state: str
    since: str | None
    attempt: int | None
    fence: int
    holder: str | None
    due_at: str | None
    category: str | None
    error: str | None
    output: Any
    output_unknown: str | UnsetType = UNSET


class JudgeFinding(Answer, kw_only=True):
    """What the judge found in a line of a log."""

    line: int
    code: str
    run: str | None
    message: str


class PastView(Answer, kw_only=True):
    """A run and its steps after an entry of its journal, and what the judge found in the entries up to it."""

    at: PastEntry
    run: PastRunDetail
    steps: list[PastStepDetail]
    findings: list[JudgeFinding]


class FieldOfBoth(Answer, kw_only=True):
    """A field that differs between two runs, or between a step of both."""

    field: str
    first: Any
    second: Any


class StepOfBoth(Answer, kw_only=True):
    """A step that differs, or that one run alone has; `seconds` from its start to its end in each."""

    name: str
    only_in: Literal["first", "second"] | None = None
    differences: list[FieldOfBoth] = field(default_factory=list)
    seconds: list[float | None] = field(default_factory=list)


class RunDifferences(Answer, kw_only=True):
    """What differs between two runs."""

    first: str
    second: str
    same: bool
    run: list[FieldOfBoth]
    steps: list[StepOfBoth]


class AttemptDifferences(Answer, kw_only=True):
    """What differs between two attempts of a step."""

    run_id: str
    step: str
    attempts: list[int]
    same: bool
    same_code: bool | None
    differences: list[FieldOfBoth]
    seconds: list[float | None]
