"""What holds runs and steps back: `engine.pauses`, `slots` (running runs), `resources` and `limits` of the engine."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from stepkeep.definition.bounds import MAX_KEY, MAX_SLOTS, MAX_UNITS
from stepkeep.engine.arguments import optional_key
from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.operations.access import OPERATE, READ
from stepkeep.operations.answers import says
from stepkeep.operations.limits import limits, pauses, resources, slots
from stepkeep.operations.limits.limits import LimitDetail, LimitList
from stepkeep.operations.limits.pauses import PauseList
from stepkeep.operations.limits.resources import ResourceList
from stepkeep.operations.limits.slots import SlotList
from stepkeep.operations.operation import Actor, Limit, Name, Words, group, operation

Queue = Annotated[str, Meta(max_length=255, description="Its name; the default queue is empty.")]


@group("pauses", "Pauses")
class AsyncPauses(AsyncGroup):
    """Pauses of queues and of the whole tenant, of which workers claim nothing, and of workflows, whose new runs start
    paused. A run is paused by `engine.pause`.

    >>> engine.pauses.list().pauses
    []
    """

    @operation(
        OPERATE,
        "POST /pauses/queue",
        "pause_queue",
        "Claim nothing more from a queue",
        example={"queue": "printers", "reason": "out of paper"},
    )
    async def pause_queue(self, queue: Queue, *, reason: Words = "", by: Actor = None) -> PauseList:
        """Claim nothing more from a queue; the default one is `""`. What workers hold goes on. They notice it within a
        second.

        >>> _ = engine.publish(hello)
        >>> [one.queue for one in engine.pauses.pause_queue("", reason="the printer is out", by="bea").pauses]
        ['']
        """
        return await pauses.pause_claims(self._store, queue, reason, caller=self._caller(by))

    @operation(
        OPERATE,
        "POST /pauses/queue/resume",
        "resume_queue",
        "Claim from a paused queue again",
        example={"queue": "printers"},
    )
    async def resume_queue(self, queue: Queue, *, by: Actor = None) -> PauseList:
        """Claim from a paused queue again.

        >>> _ = engine.publish(hello)
        >>> _ = engine.pauses.pause_queue("")
        >>> engine.pauses.resume_queue("").pauses
        []
        """
        return await pauses.resume_claims(self._store, queue, caller=self._caller(by))

    @operation(
        OPERATE,
        "POST /pauses/tenant",
        "pause_tenant",
        "Claim nothing more of the whole tenant",
        example={"reason": "an audit"},
    )
    async def pause_tenant(self, *, reason: Words = "", by: Actor = None) -> PauseList:
        """Claim nothing more of the whole tenant. What workers hold goes on. Workers notice it within a second.

        >>> [one.scope for one in engine.pauses.pause_tenant(reason="an audit", by="bea").pauses]
        ['tenant']
        """
        return await pauses.pause_claims(self._store, None, reason, caller=self._caller(by))

    @operation(OPERATE, "POST /pauses/tenant/resume", "resume_tenant", "Claim from the queues of the tenant again")
    async def resume_tenant(self, *, by: Actor = None) -> PauseList:
        """Claim from the queues of the tenant again, but from those that are paused themselves.

        >>> _ = engine.pauses.pause_tenant()
        >>> engine.pauses.resume_tenant().pauses
        []
        """
        return await pauses.resume_claims(self._store, None, caller=self._caller(by))

    @operation(
        OPERATE,
        "POST /pauses/workflow",
        "pause_workflow",
        "Let the runs of a workflow start paused",
        example={"workflow": "order", "reason": "a bad release"},
    )
    async def pause_workflow(self, workflow: Name, *, reason: Words = "", by: Actor = None) -> PauseList:
        """Let the runs of a workflow start paused, however they are started. `jobs.start("pause")` pauses live ones.

        >>> _ = engine.publish(hello)
        >>> _ = engine.pauses.pause_workflow("hello", reason="a bad release", by="bea")
        >>> print(engine.show(engine.start("hello").run_id)["run"]["state"])
        paused
        """
        caller = self._caller(by)
        found = await pauses.pause_workflow(self._store, workflow, reason, caller=caller)
        self._starter.pauses.forget(self._tenant)
        return found

    @operation(
        OPERATE,
        "POST /pauses/workflow/resume",
        "resume_workflow",
        "Let the runs of a workflow start as usual",
        example={"workflow": "order"},
    )
    async def resume_workflow(self, workflow: Name, *, by: Actor = None) -> PauseList:
        """Let the runs of a workflow start as usual. `jobs.start("resume")` resumes those that are paused.

        >>> _ = engine.publish(hello)
        >>> _ = engine.pauses.pause_workflow("hello")
        >>> engine.pauses.resume_workflow("hello").pauses
        []
        """
        found = await pauses.resume_workflow(self._store, workflow, caller=self._caller(by))
        self._starter.pauses.forget(self._tenant)
        return found

    @operation(READ, "GET /pauses", "list_pauses", "What is paused", agents="reads")
    async def list(self) -> PauseList:
        """What is paused: by whom, since when and why. Runs that are paused by themselves are in the state `paused`.

        >>> _ = engine.pauses.pause_tenant(by="ann")
        >>> [one.by for one in engine.pauses.list().pauses]
        ['ann']
        """
        return await pauses.list_pauses(self._store, self._tenant)


class Pauses(Blocking[AsyncPauses]):
    pause_queue, resume_queue = blocking(AsyncPauses.pause_queue), blocking(AsyncPauses.resume_queue)
    pause_tenant, resume_tenant = blocking(AsyncPauses.pause_tenant), blocking(AsyncPauses.resume_tenant)
    pause_workflow, resume_workflow = blocking(AsyncPauses.pause_workflow), blocking(AsyncPauses.resume_workflow)
    list = blocking(AsyncPauses.list)


Whose = Annotated[Name | None, says("Its name; without it, the whole tenant.")]


@group("slots", "Slots")
class AsyncSlots(AsyncGroup):
    """Limits on running runs: of the tenant, and of workflows. A run that finds no free slot stays queued.

    >>> engine.slots.list()["slots"]
    []
    """

    @operation(READ, "GET /slots", "list_slots", "Limits on running runs", agents="reads")
    async def list(self) -> SlotList:
        """The limits, and how many runs hold a slot and wait for one under each.

        >>> _ = engine.slots.set(5)
        >>> [(one.scope, one.most, one.held, one.waiting) for one in engine.slots.list().slots]
        [('tenant', 5, 0, 0)]
        """
        return await slots.list_slots(self._store, self._tenant)

    @operation(
        OPERATE,
        "POST /slots",
        "set_slots",
        "Limit the running runs of a workflow or of the tenant",
        example={"workflow": "order", "most": 3},
    )
    async def set(
        self, most: Annotated[int, Meta(ge=1, le=MAX_SLOTS)], *, workflow: Whose = None, by: Actor = None
    ) -> SlotList:
        """Let at most this many runs of a workflow run, or of the whole tenant. It counts before the `slots` of a
        definition. Runs that are running go on, and runs that started under no limit are not counted.

        >>> _ = engine.publish(hello)
        >>> engine.slots.set(2, workflow="hello", by="bea").slots[0].most
        2
        """
        return await self._change(workflow, most, by)

    @operation(OPERATE, "POST /slots/clear", "clear_slots", "End a limit that was set", example={"workflow": "order"})
    async def clear(self, *, workflow: Whose = None, by: Actor = None) -> SlotList:
        """End the limit that was set for a workflow, or for the whole tenant. The `slots` of a definition stay.

        >>> _ = engine.slots.set(5)
        >>> engine.slots.clear().slots
        []
        """
        return await self._change(workflow, None, by)

    async def _change(self, workflow: str | None, most: int | None, by: str | None) -> SlotList:
        caller = self._caller(by)
        found = await slots.set_limit(self._store, workflow, most, caller=caller)
        self._starter.limits.forget(self._tenant)
        return found


class Slots(Blocking[AsyncSlots]):
    list, set, clear = blocking(AsyncSlots.list), blocking(AsyncSlots.set), blocking(AsyncSlots.clear)


@group("resources", "Resources")
class AsyncResources(AsyncGroup):
    """What steps hold while they run, and the sizes of pools. A step whose resources are taken stays ready.

    >>> engine.resources.list().resources
    []
    """

    @operation(READ, "GET /resources", "list_resources", "Resources that steps hold", agents="reads")
    async def list(self) -> ResourceList:
        """The resources that are held, with the steps that hold them, and the pools that have a size.

        >>> _ = engine.resources.set("cpu", 8)
        >>> [(one.resource, one.most, one.held) for one in engine.resources.list().resources]
        [('cpu', 8, 0)]
        """
        return await resources.list_resources(self._store, self._tenant)

    @operation(
        OPERATE,
        "POST /resources",
        "set_resource",
        "Give a pool a number of units",
        example={"resource": "cpu", "most": 8},
    )
    async def set(
        self, resource: Name, most: Annotated[int, Meta(ge=1, le=MAX_UNITS)], *, by: Actor = None
    ) -> ResourceList:
        """Give a pool this many units. Steps that hold more than that go on.

        >>> engine.resources.set("cpu", 4, by="bea").resources[0].most
        4
        """
        return await resources.set_pool(self._store, resource, most, caller=self._caller(by))

    @operation(
        OPERATE, "POST /resources/clear", "clear_resource", "End the limit of a pool", example={"resource": "cpu"}
    )
    async def clear(self, resource: Name, *, by: Actor = None) -> ResourceList:
        """End the limit of a pool: its units are not counted any more. Exclusive and shared use is not affected.

        >>> _ = engine.resources.set("cpu", 4)
        >>> engine.resources.clear("cpu").resources
        []
        """
        return await resources.set_pool(self._store, resource, None, caller=self._caller(by))


class Resources(Blocking[AsyncResources]):
    list, set, clear = blocking(AsyncResources.list), blocking(AsyncResources.set), blocking(AsyncResources.clear)


LimitName = Annotated[Name, says("The name of the limit, as definitions have it.")]
Key = Annotated[
    Annotated[str, Meta(min_length=1, max_length=MAX_KEY)] | None, says("One key; without it, all that have no own.")
]
Rate = Annotated[
    Annotated[str, Meta(pattern="^[0-9]{1,10}/[0-9a-z. ]{1,20}$")] | None,
    says("How many units may begin in a time, as `100/1m`."),
]


@group("limits", "Limits by key")
class AsyncLimits(AsyncGroup):
    """Limits on steps by key: how many run at once, and how fast they begin. A step that finds its key full waits, and
    keeps nobody with another key.

    >>> engine.limits.list().limits
    []
    """

    @operation(READ, "GET /limits", "list_limits", "Limits on steps by key", agents="reads")
    async def list(self) -> LimitList:
        """The limits, what they say, and how much is held and waits under each.

        >>> _ = engine.limits.set("api", running=2)
        >>> [(one.name, one.running, one.held, one.waiting) for one in engine.limits.list().limits]
        [('api', 2, 0, 0)]
        """
        return await limits.list_limits(self._store, self._tenant)

    @operation(READ, "GET /limits/{name}", "show_limit", "One limit, its keys in use, and its changes")
    async def show(
        self,
        name: LimitName,
        *,
        key: Key = None,
        after: Annotated[str, Meta(max_length=MAX_KEY), says("Keys after this one.")] = "",
        limit: Limit = 100,
    ) -> LimitDetail:
        """One limit: the keys that steps hold or wait for, with the holders, and every change of its rule.

        >>> _ = engine.limits.set("api", running=2, reason="a slow partner", by="bea")
        >>> [(one.by, one.content["reason"]) for one in engine.limits.show("api").history]
        [('bea', 'a slow partner')]
        """
        if key is not None:
            after, limit = key[:-1], 1000
        return await limits.show_limit(self._store, self._tenant, name, key, after, limit)

    @operation(
        OPERATE,
        "POST /limits/set",
        "set_limit",
        "Say how much may run and begin under a limit",
        example={"name": "api", "running": 2, "key": "customer-7"},
    )
    async def set(
        self,
        name: LimitName,
        *,
        running: Annotated[
            Annotated[int, Meta(ge=1, le=MAX_SLOTS)] | None, says("How much may run at once under a key.")
        ] = None,
        rate: Rate = None,
        burst: Annotated[int, Meta(ge=1, le=MAX_UNITS), says("How many units of the rate may begin at once.")] = 1,
        key: Key = None,
        reason: Words = "",
        by: Actor = None,
    ) -> LimitDetail:
        """Say how much may run and begin under each key, or under one. It counts before what definitions say, outlives
        their publication, and is noticed within a second. What runs already goes on. Without numbers nothing is
        limited.

        >>> engine.limits.set("mail", rate="100/1m", burst=20, key="acme").of_keys[0].rate
        '100/1m'
        """
        rule = limits.rule_of(running, rate, burst)
        key = optional_key("the key", key)
        await limits.set_limit(self._store, name, rule, key, reason, caller=self._caller(by))
        return await self._changed(name)

    @operation(
        OPERATE,
        "POST /limits/clear",
        "clear_limit",
        "Take back what was set for a limit",
        example={"name": "api", "key": "customer-7"},
    )
    async def clear(self, name: LimitName, *, key: Key = None, reason: Words = "", by: Actor = None) -> LimitList:
        """Take back what was set for all keys, or for one. What definitions say stays.

        >>> _ = engine.limits.set("api", running=2)
        >>> engine.limits.clear("api").limits
        []
        """
        key = optional_key("the key", key)
        await limits.clear_limit(self._store, name, key, reason, caller=self._caller(by))
        self._transactor.limit_rules.forget(self._tenant)
        return await limits.list_limits(self._store, self._tenant)

    async def _changed(self, name: str) -> LimitDetail:
        self._transactor.limit_rules.forget(self._tenant)
        return await limits.show_limit(self._store, self._tenant, name, None, "", 100)


class Limits(Blocking[AsyncLimits]):
    list, show = blocking(AsyncLimits.list), blocking(AsyncLimits.show)
    set, clear = blocking(AsyncLimits.set), blocking(AsyncLimits.clear)
