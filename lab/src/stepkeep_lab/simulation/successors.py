"""Flows that continue as new, in the simulator: which workflows do so, and what must be true of their successors.

It shares no code with the engine's choice of a successor. `run_seed` draws with it, `flows` lets a flow continue,
`verdict` calls its check.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, NoReturn

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.definition import Definition
from stepkeep.kernel.machine.rows import Child, ChildState, Run
from stepkeep.kernel.machine.states import RunState
from stepkeep.kernel.plan import Plan
from stepkeep.store.change import RunKey
from stepkeep.worker.flows.context import FlowContext
from stepkeep_lab.simulation.flows import flow_step
from stepkeep_lab.simulation.ledger import Ledger
from stepkeep_lab.simulation.tables import Tables

LONGEST = 4
"""How many runs a chain has at most."""

UNDER_WAY = 0.4
"""How likely a call is under way when a flow continues as new."""

CONTINUED_AS = "continued_as"
FOLLOWS = ("business_key", "correlation_id", "labels", "workflow", "version")
"""What a successor has in common with the run before it, beside its priority and its definition."""

decode = msgspec.json.decode


def with_successors(drawn: Definition, random: Random, share: float, plans: Sequence[Plan] = ()) -> Definition:
    """The definition, or one of a single flow that continues as new a few times."""
    if drawn.dialect != "native" or random.random() >= share:
        return drawn
    first = replace(drawn.steps[0], depends_on=(), condition=None)
    flow = flow_step(first, random, [plan.definition.name for plan in plans])
    assert isinstance(flow.inputs, dict)
    flow = replace(flow, order=0, inputs={**flow.inputs, "lasts": random.randint(2, LONGEST)})
    policy = drawn.policy
    if policy is not msgspec.UNSET:
        policy = tuple(rule for rule in policy if rule.steps == (first.name,)) or msgspec.UNSET
    return replace(drawn, steps=(flow,), policy=policy)


def go_on(ctx: FlowContext, ledger: Ledger, told: list[Any], random: Random) -> NoReturn:
    """Continue as new, with an input that no other run has. A call may be under way."""
    if random.random() < UNDER_WAY:
        ctx.step("h0", value="under way")
    given = {"n": ctx.input["n"] + 1, "of": ctx.run_id, "told": told}
    if ledger.is_ahead:
        ledger.continued_ahead[ctx.run_id].append(given)
    elif ledger.continued.setdefault(ctx.run_id, given) != given:
        ledger.violation(f"successors: {ctx.run_id} continues with {given}, and before with {ledger.continued}")
    ctx.continue_as_new(given)


def is_successor(link: Child) -> bool:
    """Whether a link is that of a successor. Ids of children are of version 8."""
    return link.child_id[14:15] == "7"


def wrong_successors(tables: Tables, plans: Mapping[int, Plan], ledger: Ledger) -> Iterator[str]:
    """Everything that is wrong with the runs as which flows continued, after everything has ended."""
    links: dict[RunKey, list[Child]] = defaultdict(list)
    runs: dict[RunKey, list[Run]] = defaultdict(list)
    for link in tables.children.links.values():
        if is_successor(link):
            links[link.tenant, link.run_id].append(link)
    for key, run in tables.runs.items():
        by, _, before = tables.details[key].created_by.partition(":")
        if by == "parent" and run.id[14:15] == "7":
            runs[key[0], before].append(run)
    for key, run in tables.runs.items():
        named = _named(tables, key, run) if _is_continued(plans[run.definition_id]) else None
        for said in _wrong(tables, ledger, key, named, links[key], runs[key]):
            yield f"successors: run {key[1]} {said}"
        if named is not None:
            ledger.met["a flow that continued as new"] += 1
        elif key[1] in ledger.continued or key[1] in ledger.continued_ahead:
            ledger.met["a flow that would have continued as new"] += 1


def _is_continued(plan: Plan) -> bool:
    """Whether runs of this plan may continue as new. A parent of such a run has the same output, and does not."""
    inputs = plan.definition.steps[0].inputs
    return isinstance(inputs, dict) and "lasts" in inputs


def _named(tables: Tables, key: RunKey, run: Run) -> str | None:
    """The successor that the output of a run names. One that adopted its flow has that of an earlier run."""
    first = tables.steps[key][0]
    output = tables.output_of(key, 0)
    if run.state is not RunState.SUCCEEDED or output is None or first.note is None or first.note.adopted is not None:
        return None
    told = decode(output)
    return str(told[CONTINUED_AS]) if isinstance(told, dict) and set(told) == {CONTINUED_AS} else None


def _wrong(
    tables: Tables, ledger: Ledger, key: RunKey, named: str | None, links: list[Child], runs: list[Run]
) -> Iterator[str]:
    state = tables.runs[key].state
    if named is None:
        if links or runs:
            said = [link.child_id for link in links] + [run.id for run in runs]
            yield f"ended {state} without a successor, and is continued by {said}"
        return
    asked, begun = [link.child_id for link in links], [run.id for run in runs]
    if asked != [named] or begun != [named]:
        yield f"continues as {named}, and {asked} are asked for, {begun} were started"
        return
    [link], [run] = links, runs
    mine, then = tables.details[key], tables.details[key[0], named]
    if link.state is not ChildState.STARTED:
        yield f"continues as {named}, whose link is {link.state}"
    if run.definition_id != tables.runs[key].definition_id or run.priority != tables.runs[key].priority:
        yield f"continues as {named}, which has another definition or priority"
    for field in FOLLOWS:
        if getattr(mine, field, None) != getattr(then, field, None):
            yield f"continues as {named}, and its {field} differs: {getattr(mine, field)} and {getattr(then, field)}"
    given = [ledger.continued[key[1]]] if key[1] in ledger.continued else ledger.continued_ahead[key[1]]
    if decode(then.input) not in given:
        yield f"continues as {named} with {then.input!r}, and gave it {given}"
