"""The values of a change: which runs to lock, what was loaded, and what to write.

Plain values: a store converts them to columns and interprets none. Operations build them, and both stores take them.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import msgspec

from stepkeep.kernel.decide.decision import Involved
from stepkeep.kernel.errors import Quarantined, Unreadable
from stepkeep.kernel.machine.bounds import Id, Moment, Version
from stepkeep.kernel.machine.journal import SealedEntry
from stepkeep.kernel.machine.rows import (
    Attempt,
    Details,
    Message,
    Origin,
    Rows,
    Run,
    Step,
)
from stepkeep.kernel.machine.states import RunState
from stepkeep.kernel.people.authority import Authority, Caller
from stepkeep.store.rows import (
    AdoptionRow,
    BusinessKey,
    Held,
    HoldRow,
    KeyWant,
    LimitHold,
    LimitKey,
    LimitKeyRow,
    LimitLine,
    LimitWait,
    Mailbox,
    TriggerKey,
    TriggerRow,
)

RunKey = tuple[str, str]
"""(tenant, run id)."""


class Want(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One run to lock, and which of its rows to load with it. `people` are the actors of its events whose authority
    the decision needs; it is read after the run is locked."""

    tenant: str
    run_id: str
    steps: tuple[int, ...] = ()
    whole: bool = False
    waiting: bool = False
    inbox: bool = False
    messages: tuple[str, ...] = ()
    checkpoints: tuple[tuple[int, str], ...] = ()
    outputs: tuple[int, ...] = ()
    input: bool = False
    people: tuple[Caller, ...] = ()
    duties: bool = False
    costs: bool = False

    @property
    def key(self) -> RunKey:
        return (self.tenant, self.run_id)


class Propose(msgspec.Struct, frozen=True, kw_only=True):
    """Ready steps to find, in claim order: priority (high first), ready time, run id, step number.

    That order gives each run its share of the proposals. Within a run, the share goes to the claimable steps of these
    queues with the lowest numbers, whenever they became ready. Runs that another transaction holds are skipped; `after`
    is a low-water mark on `ready_at` for the shares. With `run`, every share is that run's, and its lock is waited for.
    """

    queues: tuple[int, ...]
    limit: int
    after: int | None = None
    run: RunKey | None = None


KeyPlace = tuple[str, str, str, str]
"""(tenant, operation, key, scope) of an idempotency key."""

ANY_CALLER = ""
"""The scope of idempotency keys that all callers of a tenant share: those that are older than scopes, and those that
operations give themselves."""


class IdempotencyKey(msgspec.Struct, frozen=True, kw_only=True):
    """One (tenant, operation, key, scope) creates one run; `fingerprint` detects another request body."""

    tenant: str
    operation: str
    key: str
    fingerprint: str
    run_id: str
    scope: str = ANY_CALLER

    @property
    def scoped_key(self) -> KeyPlace:
        return self.tenant, self.operation, self.key, self.scope


class StoredDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A published definition. `queues` has one queue id per step number of the plan (0: no worker is needed)."""

    tenant: str
    id: Id
    name: str
    version: Version
    dialect: str
    digest: str
    document: bytes
    queues: tuple[int, ...]
    published_at: Moment
    published_by: str


class StoredSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON Schema of the registry. `digest` is that of its canonical JSON."""

    tenant: str
    ref: str
    digest: str
    document: bytes
    published_at: Moment
    published_by: str


class StoredSetting(msgspec.Struct, frozen=True, kw_only=True):
    """A revision of a setting of a tenant. The newest one counts; its document is `null` where it was removed."""

    tenant: str
    kind: str
    name: str
    revision: Id
    document: bytes
    saved_at: Moment
    saved_by: str


class StoredPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A revision of a tenant's live policy. The newest one counts."""

    tenant: str
    revision: Id
    name: str
    digest: str
    document: bytes
    published_at: Moment
    published_by: str


SpendWindow = tuple[str, int]
"""(tenant, microseconds): what the tenant has spent in so much time until now."""


class Spent(msgspec.Struct, frozen=True):
    """What the ended attempts of one workflow cost together within a window."""

    workflow: str
    usd: float
    tokens: float
    attempts: int


class More(msgspec.Struct, frozen=True, kw_only=True):
    """The callback needs more rows: load these too, in the same transaction, and call it again."""

    wants: tuple[Want, ...] = ()
    definitions: tuple[int, ...] = ()
    idempotency: tuple[KeyPlace, ...] = ()
    business_keys: tuple[tuple[str, str], ...] = ()
    policies: tuple[str, ...] = ()
    """Tenants whose newest policy is needed."""
    keys: tuple[KeyWant, ...] = ()
    """Business keys to lock to the end of the transaction, after all runs. They are asked for once, all together."""
    triggers: tuple[TriggerKey, ...] = ()
    """Triggers to lock, before any business key. No change but those of triggers locks one."""
    revisions: tuple[tuple[str, int], ...] = ()
    """Revisions of policies that runs are pinned to: (tenant, number)."""
    spend: tuple[SpendWindow, ...] = ()
    adoptions: tuple[RunKey, ...] = ()
    """Runs from which steps were adopted: by which runs, and which of them owns the undo."""
    above: tuple[RunKey, ...] = ()
    """Children whose runs above are needed: those that wait for them, and so on up."""
    costs: tuple[RunKey, ...] = ()
    """Runs whose costs are needed, with those below them. They are not locked."""
    slots: tuple[str, ...] = ()
    """Tenants whose execution slots are to be locked and counted, after all runs and business keys."""
    resources: tuple[str, ...] = ()
    """Tenants whose resources are to be locked and read, after all runs and business keys."""
    limits: tuple[LimitKey, ...] = ()
    """Keys of limits to lock and read, after the resources. They are asked for once, all together."""


class Loaded(msgspec.Struct, kw_only=True):
    """Everything loaded so far in this transaction; later loads are merged into earlier ones.

    `now` is the database clock, read after the locks were taken. `runs` has only existing runs. `whole`, `waiting` and
    `inbox` tell for which runs all steps, all waiting steps, or all unconsumed messages were read. `outputs` maps (run,
    step) to the step's JSON output, None if it has none. `policies` has the newest policy of each tenant of
    `More.policies`, None if there is none; `revisions` and `spend` have what `More` asks for under these names.
    `origins` comes with `inputs`, and `costs` has what each ended attempt reported. `seen` has the ids of messages
    asked for by `Want.messages` that are in the inbox already (consumed or not), `recorded` the fences of those asked
    for by `Want.checkpoints` that are on record. `proposed` is in claim order; its runs
    and steps are locked and loaded. `authorities` has what the callers of `Want.people` bring. `mailboxes` has what was
    found under the locks of `More.keys`, after which `now` is read again. `adoptions` has what was adopted from the
    runs of `More.adoptions`, `slots` how many slots are held in the tenants of `More.slots`, `resources` what steps
    hold in those of `More.resources`, `limits` the rows of the keys of `More.limits`. `barred` has existing runs
    that must not be changed, with the reason: Unreadable or Quarantined. `passed_over` counts claimable steps that are
    not proposed because their run is barred.
    """

    now: int
    runs: dict[RunKey, Run] = {}
    steps: dict[RunKey, dict[int, Step]] = {}
    whole: set[RunKey] = set()
    waiting: set[RunKey] = set()
    inbox: dict[RunKey, tuple[Message, ...]] = {}
    seen: set[tuple[str, str, str]] = set()
    recorded: dict[RunKey, dict[tuple[int, str], int]] = {}
    outputs: dict[RunKey, dict[int, bytes | None]] = {}
    inputs: dict[RunKey, bytes] = {}
    involved: dict[RunKey, Involved] = {}
    origins: dict[RunKey, Origin] = {}
    costs: dict[RunKey, tuple[bytes | None, ...]] = {}
    above: dict[RunKey, tuple[tuple[str, int], ...]] = {}
    """The runs above a child, with their definitions, the nearest first."""
    definitions: dict[int, StoredDefinition] = {}
    idempotency: dict[KeyPlace, IdempotencyKey] = {}
    business_keys: dict[BusinessKey, str] = {}
    mailboxes: dict[BusinessKey, Mailbox] = {}
    policies: dict[str, StoredPolicy | None] = {}
    revisions: dict[tuple[str, int], StoredPolicy | None] = {}
    spend: dict[SpendWindow, tuple[Spent, ...]] = {}
    proposed: list[tuple[str, str, int]] = []
    authorities: dict[Caller, Authority] = {}
    triggers: dict[TriggerKey, TriggerRow] = {}
    adoptions: dict[RunKey, tuple[AdoptionRow, ...]] = {}
    slots: dict[str, Held] = {}
    resources: dict[str, tuple[HoldRow, ...]] = {}
    limits: dict[LimitKey, LimitKeyRow] = {}
    lines: set[tuple[LimitKey, int]] = set()
    """The keys of `limits` under which steps of a queue are parked."""
    barred: dict[RunKey, Unreadable | Quarantined] = {}
    passed_over: int = 0


class Basis(StrEnum):
    """What a decision rests on. On every basis the same kernel decides, and the write succeeds only if the rows are
    unchanged. After a conflict the decision is made again on LOCKED."""

    LOCKED = "locked"
    """Rows read in the transaction that writes, under the locks of their runs."""
    READ = "read"
    """Rows that one statement read without a lock: an optimistic claim."""
    REMEMBERED = "remembered"
    """Rows that this process wrote last: a report on a run whose only leased step this process holds."""
    NEW = "new"
    """No rows at all: starts without a key that could name an existing run."""
    USER_TRANSACTION = "user_transaction"
    """Rows read and locked in a transaction of the user: a transactional step, or a start on its connection."""


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    """A new run with all its steps. `entries` begin its journal: its creation, and the claim of its first steps if the
    same transaction made one. `rows` are all others: the messages of its inbox, cursors for a destination of its own,
    the steps that it takes from earlier runs, its slot, its idempotency key."""

    run: Run
    details: Details
    steps: tuple[Step, ...]
    entries: tuple[SealedEntry, ...]
    rows: Rows = msgspec.field(default_factory=Rows)


class LimitChange(msgspec.Struct, kw_only=True):
    """What a transaction writes of limits, `at` a moment. The keys are locked, but for those of `ended`, which the
    write locks."""

    at: int = 0
    keys: list[LimitKeyRow] = []
    holds: list[LimitHold] = []
    ended: list[tuple[str, str, int, int]] = []
    """Claims that end: (tenant, run id, step number, fence). Their places are free from the commit on."""
    parked: list[LimitWait] = []
    left: list[tuple[str, str, int]] = []
    """Steps that are parked no more."""
    begun: list[LimitLine] = []
    """Lines that begin now, unless they are there."""
    lines: list[LimitLine] = []
    """When lines are looked at again."""
    searched: list[LimitLine] = []
    """Lines in which every step was looked at: those that are empty go."""

    def __bool__(self) -> bool:
        return any((self.keys, self.ended, self.parked, self.left, self.lines, self.searched))


class RunChange(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The new value of a run row. The write must find the row at journal sequence `was`, or fail as a whole."""

    was: int
    run: Run


class Write(msgspec.Struct, kw_only=True):
    """Everything one transaction writes. The rows of nearly every change have lists of their own, and all others are
    in `rows` (`store/writing.py` has their statements and their order).

    `only_hot` promises that of existing runs and steps only the columns of `HOT_OF_RUN` and `HOT_OF_STEP` change, and
    that no attempt has a category or an error: a store need not write the rest.
    """

    new_runs: list[NewRun] = []
    runs: list[RunChange] = []
    steps: list[Step] = []
    new_steps: list[Step] = []
    attempts: list[Attempt] = []
    entries: list[SealedEntry] = []
    rows: Rows = msgspec.field(default_factory=Rows)
    limits: LimitChange = msgspec.field(default_factory=LimitChange)
    only_hot: bool = False

    @property
    def has_hot_rows(self) -> bool:
        """Whether it has runs, steps, new or not, attempts or journal entries, as most have."""
        return bool(self.runs or self.steps or self.new_steps or self.attempts or self.entries)

    @property
    def is_plain(self) -> bool:
        """Whether it has only these, or only runs that are new with nothing but their steps."""
        if self.rows or self.limits:
            return False
        if not self.new_runs:
            return True
        return not self.has_hot_rows and not any(new.rows or new.run.business_key for new in self.new_runs)

    def has(self, kinds: frozenset[Any]) -> bool:
        """Whether there is a row of one of these types."""
        return not kinds.isdisjoint(self.rows) or any(not kinds.isdisjoint(new.rows) for new in self.new_runs)

    def every_row(self) -> Rows:
        """All that is neither hot nor of a run's creation; the rows of new runs come first."""
        if not any(new.rows for new in self.new_runs):
            return self.rows
        found = Rows()
        for new in self.new_runs:
            found.take(new.rows)
        found.take(self.rows)
        return found


Decide = Callable[[Loaded], More | Write]
"""The decision callback: pure, called inside the transaction, possibly more than once."""


class Lease(msgspec.Struct, frozen=True, gc=False):
    """A lease to renew: its claim, and how long it shall last from now."""

    tenant: str
    run_id: str
    no: int
    fence: int
    lease: int


class Renewed(msgspec.Struct, frozen=True, gc=False):
    """A lease that is still valid, and the state of its run (handlers of a stopping run should end)."""

    run_id: str
    no: int
    fence: int
    run_state: RunState
