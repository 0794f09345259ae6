"""Waits that choose their messages: what simulated messages hold, what drawn waits ask for, and whether they got it.

The texts of filters have their meaning here once more, in Python, so that a check does not ask the expressions of the
engine. It changes nothing. `definitions` and `people` draw from it; `audit` and `verdict` call its checks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any

from stepkeep.kernel.definition import Wait
from stepkeep.kernel.machine.rows import Message, Step
from stepkeep.kernel.machine.states import StepState
from stepkeep.kernel.plan import Plan
from stepkeep.worker.answers import WaitFor
from stepkeep.worker.context import Woken
from stepkeep_lab.simulation.adopted import is_adopted

KINDS = 4

FILTERS: dict[str, Callable[[int], bool]] = {
    "message.m > 0": lambda m: m > 0,
    "input.n > 0 && message.m < 3": lambda m: m < 3,
}
"""What drawn filters mean. The `n` of each input is more than 0."""

ENOUGH: dict[str, Callable[[Sequence[int]], bool]] = {
    "messages.exists(one, one.m == 2)": lambda taken: 2 in taken,
    "size(messages) >= 2": lambda taken: len(taken) >= 2,
}


def payload_of(message_id: str) -> bytes:
    """What the message with this id holds: a copy of it holds the same."""
    digits = "".join(letter for letter in message_id if letter.isdigit())
    return json.dumps({"m": int(digits or "1") % KINDS}, separators=(",", ":")).encode()


def draw_takes(random: Random) -> dict[str, Any]:
    """A filter for a third of the waits, and several messages for a third of them."""
    takes: dict[str, Any] = {}
    if random.random() < 0.35:
        takes["accepts"] = random.choice(tuple(FILTERS))
    drawn = random.random()
    if drawn < 0.2:
        takes["count"] = random.choice((1, 2, 3))
    elif drawn < 0.35:
        takes["enough"] = random.choice(tuple(ENOUGH))
    return takes


def missed(plan: Plan, rows: Iterable[Step], inbox: Sequence[Message]) -> Iterator[str]:
    """Each message in the inbox that a waiting step should have taken."""
    for row in rows:
        wait = wait_of(plan, row)
        if row.state is not StepState.AWAITING_EVENT or wait is None or wait.sleeps is True:
            continue
        for message in inbox:
            if message.name == wait.event and _passes(wait, message):
                yield f"step {row.no} waits for {wait.event}, and did not take message {message.id}"


def wrongly_taken(plan: Plan, row: Step, taken: Sequence[Message]) -> Iterator[str]:
    """What is wrong with the messages that a `wait:` step took, in the order of their arrival. An adopted step took
    its messages in the run that it comes from."""
    wait = plan.of(row).definition.wait
    if wait is None or wait.sleeps is True:
        return
    if is_adopted(row):
        for message in taken:
            yield f"step {row.no} was adopted, and took message {message.id}"
        return
    for message in taken:
        if message.name != wait.event or not _passes(wait, message):
            yield f"step {row.no} took message {message.id}, which its wait does not accept"
    kinds = [_kind(message) for message in taken]
    done = row.state is StepState.SUCCEEDED
    if isinstance(wait.enough, str):
        enough = ENOUGH[wait.enough]
        early = any(enough(kinds[:end]) for end in range(1, len(kinds)))
        if early or enough(kinds) is not done:
            yield f"step {row.no} is {row.state} after {kinds}, and waits until {wait.enough}"
    else:
        needed = wait.count if isinstance(wait.count, int) else 1
        if len(taken) > needed or (len(taken) == needed) is not done:
            yield f"step {row.no} is {row.state} after {len(taken)} messages, and waits for {needed}"
    if done:
        several = isinstance(wait.enough, str) or isinstance(wait.count, int)
        wanted = [{"m": kind} for kind in kinds] if several else {"m": kinds[0]} if kinds else None
        output = None if row.note is None or row.note.output is None else json.loads(row.note.output)
        if output != wanted:
            yield f"step {row.no} took {wanted}, and its output is {output}"


def wait_of(plan: Plan, row: Step) -> Wait | None:
    """What a waiting step takes: as its definition says, or as its handler asked."""
    wait, note = plan.of(row).definition.wait, row.note
    if wait is not None or note is None or note.event is None:
        return wait
    return note.takes or Wait(event=note.event)


def fits(asked: WaitFor, woken: Woken) -> bool:
    """Whether this is what a handler may learn at the end of the wait that it asked for."""
    several = asked.count is not None or asked.until is not None
    if woken.timed_out and (asked.timeout is None or not asked.takes_timeouts):
        return False
    if not several:
        kinds = [] if woken.timed_out else [woken.payload["m"]]
    elif isinstance(woken.payload, list):
        kinds = [one["m"] for one in woken.payload]
    else:
        return False
    if asked.where is not None and not all(FILTERS[asked.where](kind) for kind in kinds):
        return False
    if asked.until is not None:
        enough = ENOUGH[asked.until]
        early = any(enough(kinds[:end]) for end in range(1, len(kinds)))
        return not early and enough(kinds) is not woken.timed_out
    needed = asked.count or 1
    return len(kinds) < needed if woken.timed_out else len(kinds) == needed and woken.name == asked.event


def _passes(wait: Wait, message: Message) -> bool:
    return not isinstance(wait.accepts, str) or FILTERS[wait.accepts](_kind(message))


def _kind(message: Message) -> int:
    found = json.loads(message.payload)["m"]
    assert isinstance(found, int)
    return found
