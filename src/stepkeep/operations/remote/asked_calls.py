"""The new calls of a flow that runs on a worker without the database, on their way to the kernel.

The worker writes each call in the words of a definition. The service reads it as strictly as a worker with the database
makes it, and refuses a report with a call that no flow could make. It reads
the steps that a handler returned in the same way. Nothing is stored here. `worker/attempts` writes,
`remote_work` reads.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.json import decode
from msgspec.structs import replace

from stepkeep.definition.bounds import MAX_CALL_BYTES
from stepkeep.definition.expressions.json_schema import check_input
from stepkeep.definition.native.added import AddedStep, complaint, read_added
from stepkeep.definition.python.calls import ReadCall, read_call, written_call
from stepkeep.definition.python.registry import Registry
from stepkeep.kernel.composition.child_runs import CONTINUE
from stepkeep.kernel.composition.flows import places_of, too_many_calls
from stepkeep.kernel.definition import Flow
from stepkeep.kernel.errors import DefinitionError, InvalidInput
from stepkeep.kernel.machine.outcomes import Added, Failed, NewCall, Outcome, Suspended
from stepkeep.kernel.machine.rows import Grown, Step
from stepkeep.kernel.machine.states import Category
from stepkeep.kernel.plan import Plan, PlannedStep, template_of
from stepkeep.operations import validate
from stepkeep.operations.pipeline.call_queues import NewStep

MAX_CODE = 64
MOST_STEPS, MOST_CHARACTERS = 50, 16 * 1024
"""Calls with more different steps than that, or longer ones, are read in a thread. A new step takes about 2 ms."""
CALL_BYTES = 512
"""What a call has at most in a request beside its arguments and its step."""


class AskedCalls(Suspended, frozen=True, kw_only=True, gc=False):
    """A flow awaits calls, and `step` of each new one is written in the words of a definition. The kernel never sees
    it."""


def written_calls(outcome: Suspended, asked: Sequence[NewStep], registry: Registry, most_bytes: int) -> AskedCalls:
    """The report of a flow for the service. Raises InvalidInput if its calls do not fit into one request."""
    calls = tuple([replace(call.new(0, 0), step=written_call(call.template, registry)) for call in asked])
    size = sum(len(call.arguments) + len(call.step) + CALL_BYTES for call in calls)
    if size > most_bytes:
        raise InvalidInput(
            f"its {len(calls)} new calls come to {size} bytes, and a worker without the database reports at most "
            f"{most_bytes} at once. Make fewer calls at a time: ctx.map with in_flight does."
        )
    return AskedCalls(**{name: getattr(outcome, name) for name in outcome.__struct_fields__} | {"calls": calls})


def is_long(outcome: AskedCalls) -> bool:
    """Whether these calls take so long to read that it is not done on an event loop."""
    steps = {call.step for call in outcome.calls}
    return len(steps) > MOST_STEPS or sum(map(len, steps)) > MOST_CHARACTERS


def read_asked(
    outcome: AskedCalls, plan: Plan, planned: PlannedStep, step: Step
) -> tuple[Suspended | Failed, list[ReadCall]]:
    """The report without its new calls, and those; or a failure for good of a flow that makes too many. `step` is the
    row of the flow. Raises InvalidInput."""
    flow = planned.kind.growth
    if not isinstance(flow, Flow):
        raise InvalidInput(f"step {planned.name} of run {step.run_id} is no flow: it awaits no calls.")
    if outcome.code is not None:
        validate.key("the digest of the code", outcome.code, MAX_CODE)
    grown = (None if step.note is None else step.note.grown) or Grown(count=0)
    if outcome.seen > grown.count:
        raise InvalidInput(
            f"the flow {planned.name} has seen {outcome.seen} ends of calls, and made {grown.count} calls."
        )
    places, count = places_of(grown, len(outcome.calls))
    if any(place >= count for place in outcome.cancels):
        raise InvalidInput(f"the flow {planned.name} cancels calls that it has not made.")
    if count > flow.max:
        error = too_many_calls(flow)
        return Failed(category=Category.VALIDATION, error=error, final=True, cost=outcome.cost), []
    calls = [_read(place, call, planned.name) for place, call in zip(places, outcome.calls, strict=True)]
    if calls and grown.continues:
        raise InvalidInput(f"the flow {planned.name} has continued as new; it makes no more calls.")
    for call in calls:
        if call.kind == CONTINUE:
            _check_continuing(call, calls, plan, is_last=outcome.seen == grown.count)
    said = {name: getattr(outcome, name) for name in Suspended.__struct_fields__}
    bare = Suspended(**said | {"calls": ()})
    return bare, calls


def _read(place: int, call: NewCall, owner: str) -> ReadCall:
    validate.key(f"the name of call {place}", call.name)
    if len(call.arguments) > MAX_CALL_BYTES:
        raise InvalidInput(
            f"the arguments of call {place} are {len(call.arguments)} bytes; at most {MAX_CALL_BYTES} fit."
        )
    try:
        return read_call(call, owner)
    except InvalidInput as problem:
        raise InvalidInput(f"call {place}: {problem}") from None


def _check_continuing(call: ReadCall, calls: Sequence[ReadCall], plan: Plan, *, is_last: bool) -> None:
    """A flow continues as new when all its calls have ended, as a run of its own workflow with an input that fits."""
    definition = plan.definition
    child = template_of(call.template.step).child
    if len(definition.steps) > 1:
        raise InvalidInput("only a flow that is its whole workflow can continue as new.")
    is_own = call.name == definition.name and call.template.child == (definition.name, definition.version)
    if not is_own or not child or child.detached is not True:
        raise InvalidInput(
            f"a flow continues as new as version {definition.version} of {definition.name}, detached: "
            "the call names another run."
        )
    if len(calls) > 1 or not is_last:
        raise InvalidInput("a flow continues as new by its last call, when all others have ended.")
    check_input(definition, decode(call.arguments))


MAX_COMPLAINT = 2_000
_decode = msgspec.json.Decoder().decode


class Proposed(Outcome, frozen=True, kw_only=True, gc=False):
    """The handler returned `steps` to add, as JSON of a list, and its own `output`. The kernel never sees it."""

    steps: bytes
    output: bytes | None = None


def read_proposed(
    proposed: Proposed, plan: Plan, planned: PlannedStep, registry: Registry | None = None
) -> tuple[Added | Failed, tuple[AddedStep, ...]]:
    """The report without its new steps, and those; or a failure for good that says what is wrong with them."""
    owner = planned.name if planned.owner is None else plan.steps[planned.owner].name
    try:
        steps = read_added(_decode(proposed.steps), owner, registry)
    except DefinitionError as error:
        return refused(proposed, complaint(error)), ()
    return Added(output=proposed.output, cost=proposed.cost, emit=proposed.emit), steps


def refused(proposed: Proposed, said: str) -> Failed:
    """A failure for good instead of steps that cannot be added. What the handler emitted is dropped with them."""
    return Failed(category=Category.VALIDATION, error=said[:MAX_COMPLAINT], final=True, cost=proposed.cost)
