"""A tenant on one database in which many attempts on its duties are made side by side, through the engine or over HTTP.

It registers people, gives them what they act through, executes runs until they wait for people, and counts what was
paid. `ways` has the attempts as tables; `test_generated_ways.py` plays them.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import httpx2

import stepkeep as sk
from stepkeep.api.browsers import CSRF
from stepkeep.client.async_client import AsyncClient
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.errors import NotAllowed
from stepkeep.operations.access import Scope
from stepkeep.operations.children.children import ChildSweep
from stepkeep.operations.continuation.jobs import JobSweep
from stepkeep.operations.triggers.events import consume
from stepkeep.operations.triggers.sweep import TriggerSweep
from stepkeep.sinks.interface import SinkContext
from stepkeep.worker.chores.relay import Relay
from tests.api.stage import Stage as Service

TENANT = "acme"
PERSONAL = [scope.value for scope in Scope if scope not in (Scope.ADMIN, Scope.VOUCH, Scope.METRICS)]
"""What a person's own key may do."""

Acting = tuple[Any, dict[str, str]]
"""What a person acts through, and the arguments that name them."""


class Session:
    """A person who signed in with a browser, as far as they decide gates."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client, self._proof = client, ""

    async def sign_in(self, key: str) -> None:
        answer = await self._client.post("/session", json={"key": key})
        assert answer.status_code == 201, answer.text
        self._proof = answer.json()["csrf"]

    async def approve(self, run_id: str, step: str) -> dict[str, Any]:
        answer = await self._client.post(f"/runs/{run_id}/approve", json={"step": step}, headers={CSRF: self._proof})
        while answer.status_code == 503:  # many write at the same time
            await asyncio.sleep(0.1)
            answer = await self._client.post(answer.request.url, json={"step": step}, headers={CSRF: self._proof})
        told: dict[str, Any] = answer.json()
        if answer.status_code == 403:
            raise NotAllowed(told["detail"], told["rule"], "")
        assert answer.status_code == 200, answer.text
        return told


class World:
    """The tenant. `paid` has the amounts that were paid for each case, and `failing` the cases whose payment fails."""

    def __init__(self, url: str, root: AsyncEngine, stack: AsyncExitStack, service: Service | None) -> None:
        self.url, self.root, self._stack, self._service = url, root, stack, service
        self.paid: defaultdict[str, list[Any]] = defaultdict(list)
        self.failing: set[str] = set()
        self.tokens: dict[str, list[str]] = defaultdict(list)
        self.unpublished: list[str] = []
        """Cases whose definition was refused, because its duty could not be enforced."""
        self.address = ""
        self.portal = ""
        self._keys: dict[str, str] = {}
        self._clients: dict[str, Any] = {}
        self._published: dict[str, asyncio.Task[Any]] = {}
        self.sweeping = asyncio.Lock()
        self._changing = asyncio.Lock()

    @property
    def is_remote(self) -> bool:
        return self._service is not None

    # -- people ------------------------------------------------------------------------------------------------------
    async def person(self, name: str, *roles: str, kind: str = "user") -> str:
        await self.people("create", name, kind=kind)
        for role in roles:
            await self.people("grant", name, role=role)
        return name

    async def people(self, change: str, *names: str, **options: Any) -> None:
        """Change people, one after the other: each change waits for the one before it."""
        async with self._changing:
            await getattr(self.root.users, change)(*names, **options)

    async def key(self, owner: str, *scopes: str) -> str:
        async with self._changing:
            made = await self.root.keys.create(owner, scopes=scopes or PERSONAL)
        return str(made["secret"])

    async def acting(self, name: str) -> Acting:
        """A person through their own key over HTTP, or in a program that vouches for them."""
        if not self.is_remote:
            return self.root, {"by": name}
        if name not in self._keys:
            self._keys[name] = await self.key(name)
        return await self.holding(self._keys[name]), {}

    async def vouched(self, name: str) -> Acting:
        """A name for which a program vouches: the host's, or a portal over HTTP."""
        return (await self.holding(self.portal) if self.is_remote else self.root), {"by": name}

    async def holding(self, key: str) -> Any:
        """What the owner of this key acts through."""
        if key not in self._clients:
            opened = AsyncClient(self.address, key=key) if self.is_remote else self.engine(key)
            self._clients[key] = await self._stack.enter_async_context(opened)
        return self._clients[key]

    async def session(self, key: str) -> Session:
        client = await self._stack.enter_async_context(httpx2.AsyncClient(base_url=self.address))
        made = Session(client)
        await made.sign_in(key)
        return made

    def engine(self, key: str) -> AsyncEngine:
        return AsyncEngine(self.url, key=key, registry=self.root.registry)

    # -- runs --------------------------------------------------------------------------------------------------------
    async def publish(self, workflows: list[sk.Workflow]) -> str:
        """Publish these, children first, each name and version once. Returns the name of the last one."""
        for one in workflows:
            name = f"{one.name}@{one.definition().version}"
            if name not in self._published:
                self._published[name] = asyncio.create_task(self.root.publish(one))
            await self._published[name]
        return workflows[-1].name

    async def settle(self, run_id: str, worker: AsyncEngine | None = None) -> None:
        """Execute a run and all below it until they wait for people, or have ended."""
        await (worker or self.root).work_on(run_id)

    async def open_steps(self, run_id: str) -> list[tuple[str, str]]:
        """What waits for a person in a run and in all below it: the run and the step."""
        view = await self.root.show(run_id)
        waiting = ("awaiting_approval", "awaiting_completion")
        found = [(run_id, one["name"]) for one in view["steps"] if str(one["state"]) in waiting]
        for child in view["run"].get("children", ()):
            if str(child["state"]) == "blocked":
                found += await self.open_steps(child["run_id"])
        return found

    async def states_of(self, run_id: str, step: str) -> list[str]:
        """The states of the steps of this name in a run and in all below it that have begun."""
        try:
            view = await self.root.show(run_id)
        except sk.NotFound:
            return []
        found = [str(one["state"]) for one in view["steps"] if one["name"] == step]
        for child in view["run"].get("children", ()):
            found += await self.states_of(child["run_id"], step)
        return found

    async def state(self, run_id: str) -> str:
        return str((await self.root.show(run_id))["run"]["state"])

    async def until(self, found: Callable[[], Awaitable[Any]]) -> Any:
        """Fire triggers, carry out jobs and relay events, as workers do, until something is found."""
        async with asyncio.timeout(60):
            while not (value := await found()):
                async with self.sweeping:
                    await self._sweep()
                await asyncio.sleep(0.05)
        return value

    async def _sweep(self) -> None:
        transactor = self.root.transactor
        sweep = TriggerSweep(transactor)

        def context(name: str) -> SinkContext:
            return SinkContext(name=name, tenant=TENANT, fire=partial(consume, sweep.firer))

        relay = Relay(transactor, TENANT, holder=lambda: "w-1", context=context)
        await sweep.sweep()
        await JobSweep(transactor).sweep("w-1")
        await ChildSweep(transactor).sweep()
        await relay.turn()
        while relay.in_flight:  # noqa: ASYNC110 - its tasks are its own
            await asyncio.sleep(0.005)


def handlers(world: Callable[[], World]) -> Registry:
    """What the steps of the attempts do."""
    registry = Registry()

    def pay(case: str, amount: Any) -> Any:
        if case in world().failing:
            raise sk.StepError("the bank is closed")
        world().paid[case].append(amount)
        return amount

    def work(case: str = "") -> dict[str, Any]:
        return {"case": case}

    def broken() -> None:
        raise sk.StepError("no")

    def noted(ctx: sk.Context, case: str) -> str:
        world().tokens[case].append(str(ctx.completion_token))
        return "noted"

    def adding(case: str, steps: list[Any], amount: Any = 1, above: int = 0) -> Any:
        return sk.then(*steps) if amount > above else None

    def looking(amount: Any) -> dict[str, bool]:
        return {"is_large": amount > 1000}

    async def asking(ctx: Any, case: str, amount: Any, prompt: str, terms: dict[str, Any], above: int = 0) -> Any:
        if amount > above:
            await ctx.gate(prompt, **terms)
        return {"case": case}

    async def calling(ctx: Any, case: str, amount: Any, items: list[int], child: str) -> Any:
        return await ctx.child(child, {"case": case, "amount": amount, "items": items})

    async def stepping(ctx: Any, case: str) -> Any:
        return await ctx.step("ways.work", case=case)

    def emitting(ctx: sk.Context, event: str, payload: Any) -> None:
        ctx.emit(event, payload)

    for function in (pay, work, broken, noted, adding, looking, asking, calling, stepping, emitting):
        registry.register(HandlerSpec(name=f"ways.{function.__name__}", function=function))
    return registry


@asynccontextmanager
async def opened(url: str, face: str) -> AsyncIterator[World]:
    """A world on this database; `face` is `engine` or `http`."""
    async with AsyncExitStack() as stack:
        made: list[World] = []
        registry = handlers(lambda: made[0])
        root = await stack.enter_async_context(AsyncEngine(url, tenant=TENANT, actor="root", registry=registry))
        service = None
        if face == "http":
            engine = await stack.enter_async_context(AsyncEngine(url, actor="service", registry=registry))
            service = Service(url, engine)
        world = World(url, root, stack, service)
        made.append(world)
        if service is not None:
            client = await stack.enter_async_context(service.serving())
            world.address = str(client.base_url)
            await world.person("portal", kind="service")
            world.portal = await world.key("portal", *(scope.value for scope in Scope))
        yield world
