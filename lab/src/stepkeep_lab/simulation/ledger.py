"""The ledger: effects of handlers, answers to callers and issued secrets, kept outside the database.

The engine never reads it. At the end `verdict` compares the database with it: everything acknowledged must be there,
every accepted outcome must be what a handler returned, and no effect may be without a cause.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from stepkeep.kernel.decide.decision import Accepted, Claimer
from stepkeep.kernel.errors import Refused
from stepkeep.kernel.machine.events import StepReported
from stepkeep.operations.messages.by_key import Sent
from stepkeep.operations.people.people import token_hash
from stepkeep.operations.pipeline.batch import Answer
from stepkeep.operations.pipeline.transact import Claim
from stepkeep.worker.answers import WaitFor

Attempted = tuple[str, int, int]
"""(run id, step number, fence)."""


class Effect(NamedTuple):
    """A handler did something to the world."""

    run_id: str
    no: int
    fence: int
    key: str


class Ack(NamedTuple):
    """A caller was told that this had been done."""

    kind: str
    run_id: str
    about: Any


class Ledger:
    """Append-only."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.answers: dict[Attempted, Any] = {}
        self.emitted: dict[Attempted, list[bytes]] = {}
        self.asked_delay: set[Attempted] = set()
        self.seen_inputs: list[tuple[str, int, str, Any]] = []
        self.tokens: dict[str, str] = {}
        self.token_of: dict[tuple[str, int], list[str]] = defaultdict(list)
        self.reissued: dict[tuple[str, int], list[str]] = defaultdict(list)
        self.presented: list[tuple[str, int, str]] = []
        self.left: list[str] = []
        self.acks: list[Ack] = []
        self.violations_told: set[tuple[str, str, str]] = set()
        """Who was refused for which duty at which step of some run."""
        self.changes: list[tuple[str, Any]] = []
        self.keys: list[tuple[str, str]] = []
        self.committed: dict[Attempted, int] = {}
        self.delayed: dict[str, int] = {}
        self.begun: set[str] = set()
        self.sent: dict[tuple[str, str], str] = {}
        self.by_key: list[tuple[str, str, Sent]] = []
        self.waits: dict[tuple[str, int], list[WaitFor]] = defaultdict(list)
        self.asked_at: dict[str, float] = {}
        """When people first asked for a run that they were told of."""
        self.begin_asked_at: dict[str, float] = {}
        """When people first asked to start a run that was created idle."""
        self.workflow_pauses: list[tuple[str, float, int]] = []
        """Paused workflows: since when, on the loop's clock, and until when, on that of the database."""
        self.continued: dict[str, Any] = {}
        """The input with which the flow of a run continued as new, or would have."""
        self.continued_ahead: dict[str, list[Any]] = defaultdict(list)
        """The same of flows that were fed ends of calls ahead. Such an end may be refused; a replay gets another."""
        self.is_ahead = False
        """Whether a flow is fed ahead at this moment."""
        self.drops: set[str] = set()
        self.dropped: set[tuple[str, str]] = set()
        self.saved_at: dict[tuple[str, str], int] = {}
        self.accepted: dict[Attempted, list[str]] = defaultdict(list)
        self.refusals: Counter[str] = Counter()
        self.met: Counter[str] = Counter()
        self.violations: list[str] = []

    def violation(self, said: str) -> None:
        """Something that must never be."""
        self.violations.append(said)

    def issue(self, run_id: str, no: int, token: str) -> None:
        self.tokens[token_hash(token)] = token
        self.token_of[run_id, no].append(token)

    def replied(
        self,
        events: Sequence[StepReported],
        replies: Sequence[Answer],
        claims: Sequence[Claim],
        claimer: Claimer | None,
    ) -> None:
        """A worker was told what became of its reports, and what it claimed with them."""
        for event, reply in zip(events, replies, strict=True):
            if isinstance(reply, Accepted):
                self.believed(event)
            elif isinstance(reply, Refused):
                self.refusals[type(reply).__name__] += 1
            else:
                self.violation(f"a report broke: {type(reply).__name__}: {reply}")
        if claims:
            self.met["a claim chained to a report"] += 1
        if claims and (claimer is None or len(claims) > claimer.slots):
            self.violation(f"I13: {len(claims)} steps were chained for a worker without that much room")

    def believed(self, event: StepReported) -> None:
        self.accepted[event.run_id, event.no, event.fence].append(type(event.outcome).__name__)
