"""Every error Stepkeep raises on purpose, drawn as a tree.

    StepkeepError
    ├── DefinitionError        what people wrote is wrong; carries every problem with its position
    ├── ExpressionError        a `${{ }}` expression cannot be compiled or evaluated
    ├── Refused                an expected no: the request was understood and changes nothing
    │   ├── InvalidInput       the request itself is malformed or out of bounds
    │   ├── NotFound           no such thing (or it belongs to another tenant)
    │   │   └── NoSuchName     a name in the request names nothing: a step, a version, a queue, an entry
    │   ├── Conflict           another decision came first; carries the winner
    │   │   ├── WrongToken     the completion token does not match the open step
    │   │   ├── TokenUsed      the completion token was used before, for another outcome
    │   │   └── TokenExpired   the completion token came after the deadline of its step
    │   ├── NotAllowed         a rule about people forbids it; carries the rule and the person
    │   ├── KeyReused          an idempotency key came back with another body
    │   ├── QuotaExceeded      a key or a tenant has used what it may use; carries the quota and when to try again
    │   ├── Fenced             a worker's write came too late; its result is dropped
    │   └── Quarantined        an operator has quarantined the run; nothing changes it until it is released
    ├── StoreError             the database could not do it
    │   ├── StoreUnavailable   not reachable, locked or full: try again later
    │   │   ├── ConnectionLost cut off in the middle: it may have happened all the same
    │   │   ├── Unreachable    no connection could be made: the server may be starting
    │   │   └── LoginRefused   the server refuses this login, or has no such database
    │   ├── PermissionDenied   the role at the database lacks a right
    │   ├── DatabaseGone       the file was moved, deleted or replaced while it was open
    │   ├── SchemaMismatch     the schema is older, newer or other than this program expects
    │   ├── DefinitionChanged  a stored definition is not the one that was published: it is not run
    │   └── Contended          two transactions conflicted: run the whole of it again
    ├── RunNotSucceeded        a program asked for success (`check=True`) and the run has none; carries its result
    ├── Unreadable             a row is damaged, or from another version; names the run, the table and the row
    └── Broken                 a promise of the engine does not hold: a defect, never swallowed
        ├── IllegalTransition  a (state, trigger) pair that has no row in the table
        └── InvariantBroken    rows that contradict each other

Expected refusals are typed so that each edge can translate them (exit status, HTTP status); surprises stay loud.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from stepkeep.edges.safe_text import inert, inert_line

MAX_SAID = 1_900
"""How many characters of a problem's message and hint are shown."""

MAX_MESSAGE = 1_400
MAX_HINT = 500
"""How many characters of a problem's message, and of its hint and path, are kept."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong in a definition: where it is, what is wrong, what to do."""

    file: str
    line: int
    column: int
    path: str
    message: str
    hint: str = ""

    def __post_init__(self) -> None:
        # Programs read these without `__str__`, and a message may quote a key of a megabyte.
        for name, limit in (("message", MAX_MESSAGE), ("hint", MAX_HINT), ("path", MAX_HINT)):
            text: str = getattr(self, name)
            if len(text) > limit:
                msgspec.structs.force_setattr(self, name, f"{text[: limit - 1]}…")

    def __str__(self) -> str:
        # One line, whatever keys and names the message quotes: a line break in one would forge another problem.
        where = f"{inert_line(self.file)}:{self.line}:{self.column}"
        said = f"{self.message} {self.hint}" if self.hint else self.message
        return f"{where}: {inert_line(said, MAX_SAID)}"


class StepkeepError(Exception):
    """The root of every error raised on purpose."""


class DefinitionError(StepkeepError):
    """A definition that cannot be accepted; `problems` names all that is wrong with it at once."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class ExpressionError(StepkeepError):
    """An expression that cannot be compiled or evaluated; `column` points into its source where known."""

    def __init__(self, message: str, *, column: int | None = None, hint: str = "") -> None:
        self.message, self.column, self.hint = inert(message), column, inert(hint)
        super().__init__(f"{self.message} {self.hint}".strip())


class Refused(StepkeepError):
    """An expected no. Nothing was changed."""

    code = "refused"


class InvalidInput(Refused):
    """The request is malformed or out of bounds."""

    code = "invalid_input"


class NotFound(Refused):
    """There is no such thing, or it belongs to another tenant: the two look the same on purpose."""

    code = "not_found"


class NoSuchName(NotFound):
    """A name in the request names nothing: a step of a run, a version of a workflow, a queue, an entry of a journal.

    What the request is about exists, or the name is looked for within the tenant alone. The service may therefore tell
    the message, which names what there is.
    """


class Conflict(Refused):
    """The state does not allow this, or another decision came first (`winner` names its actor and its content)."""

    code = "conflict"

    def __init__(self, message: str, winner: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.winner = winner


class WrongToken(Conflict):
    """The completion token is not the one of this activation of this step."""

    code = "wrong_token"


class TokenUsed(Conflict):
    """The step was completed with this token before, with another outcome; carries that completion."""

    code = "token_used"


class TokenExpired(Conflict):
    """The deadline of the manual step has passed: its token completes nothing any more."""

    code = "token_expired"


class NotAllowed(Refused):
    """A rule about people forbids it: `rule` names the rule, `person` the person that it was applied to, and `reason`
    is the ground in a few words, if there is one. `step` names the step, where separate duties are the rule."""

    code = "not_allowed"

    def __init__(
        self, message: str, rule: str = "", person: str | None = None, reason: str = "", step: str | None = None
    ) -> None:
        super().__init__(message)
        self.rule, self.person, self.reason, self.step = rule, person, reason, step

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.rule, self.person, self.reason, self.step)


class KeyReused(Refused):
    """The same idempotency key arrived with another body; nothing was created. `earlier` has the `run_id` (or `job`)
    that it was used for, and names what `differs`, where that is known."""

    code = "key_reused"

    def __init__(self, message: str, earlier: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.earlier = earlier or {}


class QuotaExceeded(Refused):
    """A key or a tenant has used its quota; nothing was done. `retry_after` (seconds) says when to try again."""

    code = "quota_exceeded"

    def __init__(self, message: str, quota: str = "", *, retry_after: int = 1) -> None:
        super().__init__(message)
        self.quota, self.retry_after = quota, retry_after


class Fenced(Refused):
    """The lease is gone: another claim, an expiry or a cancel came first, and this result is dropped."""

    code = "fenced"


class Quarantined(Refused):
    """An operator has set the run aside (`stepkeep quarantine`); nothing moves it until it is released."""

    code = "quarantined"


class RunNotSucceeded(StepkeepError):
    """The run has failed, was cancelled or rolled back, or waits; `result` says which, and what it waits for."""

    def __init__(self, message: str, result: Any = None) -> None:
        super().__init__(message)
        self.result = result


class PayloadSealed(StepkeepError):
    """A payload is sealed, and cannot be opened here: there is no codec, or it lacks the key."""


class Unreadable(StepkeepError):
    """A row of the database cannot be read: it is damaged, or a program of another version wrote it.

    It concerns one run, never the database as a whole, and looking again does not help. `state` is the state of the run
    as it is stored, where its row was found.
    """

    state: str | None = None

    def __init__(
        self, table: str, row: str = "", reason: str = "", *, tenant: str | None = None, run_id: str | None = None
    ) -> None:
        self.table, self.row, self.reason, self.tenant, self.run_id = table, row, reason, tenant, run_id
        where = f"{table} ({row})" if row else table
        if run_id is None:
            said = f"a row of {where} cannot be read: {reason}. Restore it from a backup."
        else:
            said = (
                f"run {run_id} cannot be read: its row in {where} is damaged, or another version of Stepkeep wrote it: "
                f"{reason}. Restore the row from a backup, or set the run aside: "
                f"stepkeep quarantine {run_id} --reason TEXT"
            )
        super().__init__(said)

    def __reduce__(self) -> tuple[Any, ...]:
        given = self.table, self.row, self.reason, self.tenant, self.run_id
        return _rebuild_unreadable, given, {"state": self.state}


def _rebuild_unreadable(table: str, row: str, reason: str, tenant: str | None, run_id: str | None) -> Unreadable:
    return Unreadable(table, row, reason, tenant=tenant, run_id=run_id)


class StoreError(StepkeepError):
    """The database could not do what was asked."""


class StoreUnavailable(StoreError):
    """The database cannot be reached, is locked or is full; nothing was acknowledged."""


class ConnectionLost(StoreUnavailable):
    """The line to the database broke under way. Whether it was committed is unknown: ask again, it is recognised."""


class Unreachable(StoreUnavailable):
    """No connection to the server could be made. It may be starting, so a worker waits for it."""


class LoginRefused(StoreUnavailable):
    """The server refuses this login, or has no such database: a new program gives up, a running one goes on trying."""


class DatabaseGone(StoreError):
    """The database file was moved, deleted or replaced while it was open. No further try can help."""


class PermissionDenied(StoreError):
    """The role that the program has at the database lacks a right; nothing was changed."""


class SchemaMismatch(StoreError):
    """The schema in the database is not the one this program was written for."""


class DefinitionChanged(StoreError):
    """A stored definition differs from the digest it was published under, so no run of it goes on."""


class Contended(StoreError):
    """Two transactions conflicted (deadlock, unique race, serialisation): the whole transaction may be run again."""


class Broken(StepkeepError):
    """A promise of the engine does not hold. This is a defect in Stepkeep: report it."""


class IllegalTransition(Broken):
    """The kernel was asked for a (state, trigger) pair that has no row."""


class InvariantBroken(Broken):
    """Rows that contradict each other were about to be written; nothing was."""
