"""What a change loads beside runs and steps, as generators without I/O: each yields a statement with what is asked, and
is sent the rows. Both stores drive them, after they have locked the runs; locks are each store's own.

A row of a run that cannot be read bars that run alone. Nothing here decides or knows SQL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from stepkeep.kernel.decide.decision import Involved, involved_in
from stepkeep.kernel.machine.rows import Origin
from stepkeep.store import columns
from stepkeep.store.change import Loaded, More, RunKey, Spent, Want
from stepkeep.store.reading import read_definitions, unreadable
from stepkeep.store.rows import RESOURCES_LOCK, SLOTS_LOCK

T = TypeVar("T")


class Ask(NamedTuple):
    """A statement, and either the keys that it is about or its parameters.

    The rows of a statement about parts of runs begin with the key. `table` is where a text of a run may be damaged.
    """

    statement: str
    keys: Sequence[Any] = ()
    given: tuple[Any, ...] | None = None
    table: str = ""


Rows = Sequence[Sequence[Any]]
Loads = Generator[Ask, Rows, T]


def bar(loaded: Loaded, table: str, row: Sequence[Any], problem: Exception) -> None:
    """Leave a run out of this transaction because one of its rows cannot be read."""
    key = (row[0], row[1])
    loaded.barred.setdefault(key, unreadable(table, key, row, problem))


def wanted_rows(there: Sequence[Want], loaded: Loaded) -> Loads[None]:
    """Messages, checkpoints, outputs, inputs and costs of runs that are locked."""
    if inbox := [key for key in keys_of(there, "inbox") if key not in loaded.inbox]:
        loaded.inbox.update(dict.fromkeys(inbox, ()))
        for row in (yield Ask("load_inbox", inbox, table="messages")):
            try:
                loaded.inbox[row[0], row[1]] += (columns.message_from(row),)
            except Exception as problem:  # noqa: BLE001 - it is this run's alone
                bar(loaded, "messages", row, problem)
    if messages := [(*want.key, message) for want in there for message in want.messages]:
        loaded.seen.update([(row[0], row[1], row[2]) for row in (yield Ask("load_seen_messages", messages))])
    if checkpoints := [(*want.key, *one) for want in there for one in want.checkpoints]:
        for tenant, run_id, no, name, fence in (yield Ask("load_checkpoints", checkpoints)):
            loaded.recorded.setdefault((tenant, run_id), {})[no, name] = fence
    if outputs := [(*want.key, no) for want in there for no in want.outputs]:
        for tenant, run_id, no in outputs:
            loaded.outputs.setdefault((tenant, run_id), {}).setdefault(no, None)
        for row in (yield Ask("load_outputs", outputs, table="attempts")):
            tenant, run_id, no, note, output = row
            try:
                loaded.outputs[tenant, run_id][no] = columns.output_from(note, output)
            except Exception as problem:  # noqa: BLE001 - it is this run's alone
                bar(loaded, "steps", row, problem)
    if inputs := [key for key in keys_of(there, "input") if key not in loaded.inputs]:
        for tenant, run_id, given, *origin in (yield Ask("load_inputs", inputs)):
            loaded.inputs[tenant, run_id] = given
            loaded.origins[tenant, run_id] = Origin(*origin)
    yield from _costs(keys_of(there, "costs"), loaded)


def keys_of(wants: Iterable[Want], part: str) -> list[RunKey]:
    """The runs of which a part is wanted, each once."""
    return list(dict.fromkeys(want.key for want in wants if getattr(want, part)))


def _costs(keys: Iterable[RunKey], loaded: Loaded) -> Loads[None]:
    if costs := [key for key in keys if key not in loaded.costs]:
        loaded.costs.update(dict.fromkeys(costs, ()))
        for tenant, run_id, cost in (yield Ask("load_costs", costs)):
            loaded.costs[tenant, run_id] += (cost,)


def people_behind(keys: Collection[RunKey]) -> Loads[dict[RunKey, Involved]]:
    """The people behind runs: those who asked for them, and the owners of the workers that execute their steps."""
    runs = list(keys)
    asked = yield Ask("load_requesters", runs)
    executed = yield Ask("load_executors", runs)
    return involved_in(
        runs,
        [((tenant, run_id), person, before) for tenant, run_id, person, before in asked],
        [((tenant, run_id), no, owner) for tenant, run_id, no, owner in executed],
    )


def more_rows(more: More, loaded: Loaded) -> Loads[None]:
    """What a decision asks for beside runs, up to the triggers, which are locked before any business key."""
    if more.definitions:
        found = yield Ask("load_definitions", more.definitions)
        for definition in read_definitions(columns.unchecked_definition, found):
            loaded.definitions[definition.id] = definition
    if more.idempotency:
        promises = map(columns.idempotency_from, (yield Ask("load_idempotency_keys", more.idempotency)))
        loaded.idempotency.update({one.scoped_key: one for one in promises})
    if more.policies:
        found = yield Ask("load_policies", more.policies)
        loaded.policies.update(dict.fromkeys(more.policies))
        loaded.policies.update({row[0]: columns.policy_from(row) for row in found})
    if more.revisions:
        found = yield Ask("load_revisions", more.revisions)
        loaded.revisions.update(dict.fromkeys(more.revisions))
        loaded.revisions.update({(row[0], row[1]): columns.policy_from(row) for row in found})
    for tenant, per in more.spend:
        found = yield Ask("load_spend", given=(tenant, loaded.now - per))
        loaded.spend[tenant, per] = tuple(Spent(*row) for row in found)
    if more.business_keys:
        for tenant, key, run_id in (yield Ask("load_business_keys", more.business_keys)):
            loaded.business_keys[tenant, key] = run_id
    if more.above:
        loaded.above.update(dict.fromkeys(more.above, ()))
        for tenant, child, run_id, definition in (yield Ask("load_above", more.above)):
            loaded.above[tenant, child] += ((run_id, definition),)
    yield from _costs(more.costs, loaded)
    if more.adoptions:
        loaded.adoptions.update(dict.fromkeys(more.adoptions, ()))
        for row in (yield Ask("load_adoptions", more.adoptions)):
            loaded.adoptions[row[0], row[3]] += (columns.adoption_from(row),)
    if more.triggers:
        for row in (yield Ask("lock_triggers", more.triggers)):
            loaded.triggers[row[0], row[1]] = columns.trigger_from(row)


def locked_tenants(more: More, loaded: Loaded) -> Loads[None]:
    """Slots and resources of tenants and keys of limits, locked and then read, after all runs and business keys."""
    for tenant in sorted(more.slots):
        yield Ask("lock_quota", given=(tenant, SLOTS_LOCK))
        held = yield Ask("count_held_slots", given=(tenant,))
        loaded.slots[tenant] = {str(workflow): count for workflow, count in held}
    for tenant in sorted(more.resources):
        yield Ask("lock_quota", given=(tenant, RESOURCES_LOCK))
        holds = yield Ask("read_resource_holds", given=(tenant,))
        loaded.resources[tenant] = tuple([columns.hold_from(row) for row in holds])
    if more.limits:
        yield from _limit_keys(more, loaded)


def _limit_keys(more: More, loaded: Loaded) -> Loads[None]:
    """Lock keys of limits in one order, then read the lines under them."""
    asked = columns.json_text(sorted(more.limits))
    for row in (yield Ask("lock_limit_keys", given=(asked, loaded.now))):
        found = columns.limit_key_from(row)
        loaded.limits[found.limit_key] = found
    for tenant, name, key, queue in (yield Ask("load_limit_lines", given=(asked,))):
        loaded.lines.add(((tenant, name, key), queue))


def sizes(shares: Sequence[RunKey], barred: Collection[RunKey]) -> Counter[RunKey]:
    """How many shares each run has, without runs that must not be changed."""
    return Counter([key for key in shares if key not in barred])


def fill(shares: Sequence[RunKey], lowest: Mapping[RunKey, Sequence[int]], loaded: Loaded) -> None:
    """Propose for each share of the claim order its run's next step; `lowest` has the numbers of claimable steps in
    ascending order."""
    rest = {key: iter(numbers) for key, numbers in lowest.items()}
    for key in shares:
        if key in loaded.barred:
            loaded.passed_over += 1
        elif (no := next(rest.get(key, iter(())), None)) is not None:
            loaded.proposed.append((*key, no))
