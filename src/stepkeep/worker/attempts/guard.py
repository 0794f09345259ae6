"""Keeps the values of secrets out of what an attempt leaves behind: its result, events, error and traceback.

Errors, tracebacks, the captured output of commands and the responses of HTTP requests are redacted. A result or an
event of a handler that holds a value is refused instead: changed data would mislead the steps after it. The pools'
runner and the workbench call it for every outcome.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from stepkeep.edges.secret_values import Redactor
from stepkeep.kernel.machine.outcomes import Completed, Failed, Outcome, RulesFailed, Waiting
from stepkeep.kernel.machine.states import Category
from stepkeep.operations.remote.asked_calls import Proposed
from stepkeep.worker.attempts.executor import Job
from stepkeep.worker.attempts.results import FailedWithTraceback

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def without_secrets(outcome: Outcome, job: Job) -> Outcome:
    """The outcome without any value of the secrets that this attempt was given."""
    if not job.loaded.secrets:
        return outcome
    redactor = Redactor(job.loaded.secrets.items())
    match outcome:
        case FailedWithTraceback():
            outcome = replace(outcome, traceback=redactor.text(outcome.traceback))
            return replace(outcome, error=redactor.text(outcome.error), cost=_cost(outcome, redactor))
        case RulesFailed():
            return replace(outcome, error=redactor.text(outcome.error))
        case Failed():
            return replace(outcome, error=redactor.text(outcome.error), cost=_cost(outcome, redactor))
        case Completed():
            if job.prepared.spec is None:
                outcome = _captured(outcome, redactor)
            return _refused(outcome, redactor, "the result", outcome.output)
        case Proposed():
            outcome = _refused(outcome, redactor, "the steps to add", outcome.steps)
            return (
                _refused(outcome, redactor, "the result", outcome.output) if isinstance(outcome, Proposed) else outcome
            )
        case Waiting():
            asked = "\n".join(filter(None, (outcome.event, outcome.accepts, outcome.enough)))
            return _refused(outcome, redactor, "what the step waits for", asked.encode())
    return outcome


def _cost(outcome: Failed, redactor: Redactor) -> bytes | None:
    """The cost of a failed attempt, unless one of its names holds a value."""
    cost = outcome.cost
    return None if cost is None or redactor.found_in(cost.decode()) is not None else cost


def _captured(outcome: Completed, redactor: Redactor) -> Completed:
    """What a program printed or a server answered is not chosen by the workflow, so it is redacted."""
    if outcome.output is None:
        return outcome
    value = _decode(outcome.output)
    if isinstance(value, dict) and value.get("stdout_cut"):
        value["stdout"] = redactor.text(value["stdout"], is_cut=True)
    return replace(outcome, output=_encode(redactor.json(value)))


def _refused(outcome: Completed | Waiting | Proposed, redactor: Redactor, what: str, said: bytes | None) -> Outcome:
    """The outcome itself; or, if it would store the value of a secret, a failure for good that names the secret."""
    parts = [(what, said), ("the cost", outcome.cost)]
    for event in outcome.emit:
        parts += [("the name of an event", event.name.encode()), (f"the payload of {event.name}", event.payload)]
    for where, encoded in parts:
        name = None if encoded is None else redactor.found_in(encoded.decode())
        if name is not None:
            error = (
                f"{redactor.text(where)} holds the value of the secret {name}, and would be stored. "
                "Return it without the value; the steps after it can read the secret themselves."
            )
            return Failed(category=Category.VALIDATION, error=error, final=True)
    return outcome
