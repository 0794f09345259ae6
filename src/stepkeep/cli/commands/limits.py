"""`stepkeep slots`, `resources`, `limits`, `network`, `pause`, `resume`: what keeps work from going on, or lets it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import UNSET

from stepkeep.cli.answering import print_answer, table
from stepkeep.cli.arguments import By, Text, arg, opt
from stepkeep.cli.command import Commands, CommandValues, program
from stepkeep.cli.commands.decide import Reason, decided
from stepkeep.cli.settings import CommandNeeds, Settings
from stepkeep.kernel.errors import InvalidInput
from stepkeep.operations.runs.causes import queue_words

if TYPE_CHECKING:
    from stepkeep.operations.limits.limits import LimitDetail, LimitList
    from stepkeep.operations.limits.pauses import PauseList
    from stepkeep.operations.limits.resources import ResourceList
    from stepkeep.operations.limits.slots import SlotList
    from stepkeep.operations.people.network import Allowed

slots = Commands("slots", "Limits on running runs.")
WORKFLOW = opt("--workflow", "NAME", "A workflow, not the whole tenant.", show_default=False)
RUNS = arg("NUMBER", "How many runs may hold a slot.", typed_as="number")


@slots.operation("set", "slots.set", creates=True, most=RUNS, workflow=WORKFLOW)
def set_slots(_: SlotList, asked: CommandValues) -> Iterator[str]:
    """Let at most NUMBER runs of the tenant run, or of a workflow. Further ones stay queued until a slot is free."""
    undo = () if asked["workflow"] is None else ("--workflow", asked["workflow"])
    yield f"at most {asked['most']} runs of {_scope(asked)} run; processes notice it within two seconds"
    yield "runs that are running go on; those that started under no limit are not counted"
    yield f"End the limit: {asked.command('slots', 'clear', *undo)}"


@slots.operation("clear", "slots.clear", workflow=WORKFLOW)
def clear_slots(_: SlotList, asked: CommandValues) -> Iterator[str]:
    """End a limit that was set. The `slots` of a definition stay."""
    yield f"no limit is set for {_scope(asked)}; workers grant slots to the runs that wait"
    yield f"See what is left: {asked.command('slots', 'list')}"


@slots.operation("list", "slots.list")
def list_slots(found: SlotList, _: CommandValues) -> None:
    """List the limits, and how many runs hold a slot and wait for one."""
    table(
        found.slots,
        "no run is under a limit: set one with `stepkeep slots set`, or `slots` in a definition",
        "of most held waiting",
        of=lambda one: "the tenant" if one.workflow is None else f"workflow {one.workflow}",
        most=lambda one: "no limit" if one.most is None else one.most,
    )


def _scope(asked: CommandValues) -> str:
    return asked.settings.whose if asked["workflow"] is None else f"workflow {asked['workflow']}"


resources = Commands("resources", "Resources that steps need while they run.")
RESOURCE = arg("RESOURCE", "Its name.")
UNITS = arg("NUMBER", "How many units it has.", typed_as="number")


@resources.operation("set", "resources.set", creates=True, resource=RESOURCE, most=UNITS)
def set_resource(_: ResourceList, asked: CommandValues) -> Iterator[str]:
    """Give the pool RESOURCE NUMBER units. A step that needs more than are free stays ready."""
    yield f"resource {asked['resource']} has {asked['most']} units; steps that hold more than that go on"
    yield f"End the limit: {asked.command('resources', 'clear', asked['resource'])}"


@resources.operation("clear", "resources.clear", resource=RESOURCE)
def clear_resource(_: ResourceList, asked: CommandValues) -> Iterator[str]:
    """End the limit of a pool. Exclusive and shared use is not affected."""
    yield f"no limit is set for the units of resource {asked['resource']}"
    yield f"See what is left: {asked.command('resources', 'list')}"


@resources.operation("list", "resources.list")
def list_resources(found: ResourceList, _: CommandValues) -> None:
    """List the resources that steps hold, and the pools that have a size."""
    rows = [
        {
            "resource": one.resource,
            "units": "no limit" if one.most is None else one.most,
            "held": holder.amount if holder else "",
            "by": f"{holder.step} of {holder.run_id}" if holder else "nothing",
            "since": holder.since if holder else "",
        }
        for one in found.resources
        for holder in (*one.holders,) or (None,)
    ]
    table(rows, "no step holds a resource, and no pool has a size: set one with `stepkeep resources set`")


limits = Commands("limits", "Limits on steps by key: how many run at once, and how fast they begin.")
LIMIT = arg("LIMIT", "Its name.")
KEY = opt("--for", "KEY", "One key of the limit, not all of them.", show_default=False)
RUNNING = opt("--running", "NUMBER", "How much may run at once under a key.", show_default=False)
RATE = opt("--rate", "RATE", "How many units may begin in a time, as 100/1m.", show_default=False)
BURST = opt("--burst", "NUMBER", "How many units may begin at once.")
WHY = opt("--reason", "TEXT", "Why: it is kept with the change.", show_default=False)


@limits.operation(
    "set", "limits.set", creates=True, name=LIMIT, running=RUNNING, rate=RATE, burst=BURST, key=KEY, reason=WHY
)
def set_limit(_: LimitDetail, asked: CommandValues) -> Iterator[str]:
    """Say how much may run and begin under LIMIT, for each key or for one. Further steps wait; others pass them."""
    whose = f"limit {asked['name']}" + (f" for {asked['key']}" if asked["key"] else "")
    yield f"{whose} is set; workers notice it within a second, and what runs goes on"
    yield f"Who holds it: {asked.command('limits', 'show', asked['name'])}"


@limits.operation("clear", "limits.clear", name=LIMIT, key=KEY, reason=WHY)
def clear_limit(_: LimitList, asked: CommandValues) -> str:
    """Take back what was set for LIMIT, for all keys or for one. What definitions say stays."""
    return f"nothing is set for limit {asked['name']}" + (f" and {asked['key']}" if asked["key"] else "")


@limits.operation("list", "limits.list")
def list_limits(found: LimitList, _: CommandValues) -> None:
    """List the limits, and what is held and waits under each."""
    rows = [
        {
            "limit": one.name,
            "running": "no limit" if one.running is None else one.running,
            "rate": one.rate or "no limit",
            "by": one.said_by or "nobody",
            "held": f"{one.held} under {one.keys_held} keys",
            "waiting": one.waiting,
        }
        for one in found.limits
    ]
    table(rows, "there is no limit: a definition names one, or `stepkeep limits set` does")


@limits.operation("show", "limits.show", name=LIMIT, key=KEY, after=None, limit=None)
def show_limit(found: LimitDetail, _: CommandValues) -> None:
    """Show LIMIT: its keys in use, who holds them, and what was set."""
    rows = [
        {
            "key": one.key or "(all)",
            "held": one.held,
            "waiting": one.waiting,
            "by": ", ".join(f"{holder.step} of {holder.run_id}" for holder in one.holders[:3]) or "nobody",
            "since": one.holders[0].since if one.holders else "",
        }
        for one in found.in_use
    ]
    table(rows, "no step holds it or waits for it")
    changes = [{"at": one.at, "by": one.by, "content": one.content} for one in found.history]
    table(changes, "nothing was ever set")


network = Commands("network", "What HTTP steps may reach on the internal network.")
HOST = arg("ADDRESS", "As in search.internal:9200 or 10.0.0.0/8.")


@network.operation("allow", "network.allow", creates=True, needs=CommandNeeds.DATABASE, host=HOST)
def allow(_: Allowed, asked: CommandValues) -> Iterator[str]:
    """Let HTTP steps of the tenant reach a host, an address or a network, although it is internal."""
    whose, host = asked.settings.tenant, asked["host"]
    yield f"HTTP steps of tenant {whose} may reach {host}; the next attempt of each uses it"
    yield f"Take it back: {asked.command('network', 'remove', host)}"


@network.operation("remove", "network.remove", needs=CommandNeeds.DATABASE, host=HOST)
def remove(_: Allowed, asked: CommandValues) -> str:
    """Remove an entry of the allow list."""
    return f"{asked['host']} is no longer allowed; requests that are under way are not interrupted"


@network.operation("list", "network.list", history=opt("--history", "Show every change with its actor, too."))
def list_allowed(found: Allowed, _: CommandValues) -> None:
    """List what the tenant's HTTP steps may reach beside public addresses."""
    nothing = "nothing is allowed beside public addresses and what a worker allows itself (--http-allow)"
    table([{"allowed": one} for one in found.allow], nothing)
    if found.history is not UNSET:
        rows = [{**one, "content": " ".join(one.content or [])} for one in found.history]
        table(rows, "nothing was ever changed")


Run = Annotated[Text, arg("RUN", "The run's id, or enough of its beginning or end.")]
Queue = Annotated[Text, opt("--queue", "NAME", 'A queue, not a run; the default one is "".', show_default=False)]
Workflow = Annotated[Text, opt("--workflow", "NAME", "The new runs of a workflow, not a run.", show_default=False)]
All = Annotated[bool, opt("--all", "The whole tenant in place of a run.")]


@program.command("pause")
def pause(
    settings: Settings,
    run: Run = None,
    queue: Queue = None,
    workflow: Workflow = None,
    all_: All = False,
    reason: Reason = "",
    by: By = None,
) -> int:
    """Claim nothing more of a run, a queue, new runs of a workflow or the whole tenant. What is in flight settles."""
    _check_one(run, queue, workflow, all_)
    why: dict[str, Any] = {"reason": reason, "by": by}
    if run is not None:
        return decided(settings, run, lambda engine, found: engine.pause(found, **why))
    if workflow is not None:
        said = (
            f"runs of {workflow} start paused from now on; other processes notice it within a second",
            f"Pause its live runs: {settings.command('jobs', 'start', 'pause', '--workflow', workflow)}",
            f"Go on: {settings.command('resume', '--workflow', workflow)}",
        )
        return print_answer(settings, lambda engine: engine.pauses.pause_workflow(workflow, **why), lambda _: said)
    said = (
        f"{settings.whose if queue is None else queue_words(queue)} is paused",
        "workers notice it within a second; what they hold goes on",
        f"Go on: {settings.command('resume', *(('--all',) if queue is None else ('--queue', queue)))}",
    )
    if queue is None:
        return print_answer(settings, lambda engine: engine.pauses.pause_tenant(**why), lambda _: said)
    return print_answer(settings, lambda engine: engine.pauses.pause_queue(queue, **why), lambda _: said)


@program.command("resume")
def resume(
    settings: Settings,
    run: Run = None,
    queue: Queue = None,
    workflow: Workflow = None,
    all_: All = False,
    reason: Reason = "",
    by: By = None,
) -> int:
    """Go on with a paused run, queue or tenant, or let new runs of a workflow start as usual."""
    _check_one(run, queue, workflow, all_)
    if run is not None:
        return decided(settings, run, lambda engine, found: engine.resume(found, reason=reason, by=by))
    if reason:
        raise InvalidInput("--reason is kept with the resumption of a run only.")
    if workflow is not None:
        said = (
            f"runs of {workflow} start as usual; those that are paused stay so",
            f"Resume them: {settings.command('jobs', 'start', 'resume', '--workflow', workflow)}",
        )
        return print_answer(settings, lambda engine: engine.pauses.resume_workflow(workflow, by=by), lambda _: said)

    def words(found: PauseList) -> Iterator[str]:
        """What is claimed from again, and the pauses that still keep steps from workers."""
        yield f"{settings.whose if queue is None else queue_words(queue)} is not paused"
        for one in found.pauses:
            if one.scope == "tenant":
                yield f"{settings.whose} is still paused: {settings.command('resume', '--all')}"
            elif one.queue is not None:
                yield f"{queue_words(one.queue)} is still paused: {settings.command('resume', '--queue', one.queue)}"

    if queue is None:
        return print_answer(settings, lambda engine: engine.pauses.resume_tenant(by=by), words)
    return print_answer(settings, lambda engine: engine.pauses.resume_queue(queue, by=by), words)


def _check_one(run: str | None, queue: str | None, workflow: str | None, all_: bool) -> None:
    """Refuse a line that names nothing, or two things."""
    if sum(one is not None for one in (run, queue, workflow)) + all_ != 1:
        raise InvalidInput("name one thing: a run, --queue NAME, --workflow NAME, or --all for the whole tenant.")
