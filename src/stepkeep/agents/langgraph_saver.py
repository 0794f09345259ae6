"""A checkpoint saver of LangGraph on the database of an engine, or behind a service.

    saver = langgraph.StepkeepSaver(engine)
    graph = builder.compile(checkpointer=saver)
    graph.invoke(input, {"configurable": {"thread_id": "ada"}})

A thread is the conversation `graph:` and its id, of the engine's tenant. A value of a channel is kept once for each of
its versions. It is for code outside of flows: the run of a flow is its record. Needs the extra `langgraph`.
"""

from __future__ import annotations

import base64
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from typing import Any, cast
from urllib.parse import quote, unquote

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
    writes_sort_key,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from stepkeep.agents.conversing import Conversing
from stepkeep.kernel.errors import NotFound
from stepkeep.operations.conversations import MOST_AT_ONCE, Item

__all__ = ["StepkeepSaver"]

THREAD, STATES, VALUES, WRITES = "graph:", "checkpoint", "value", "write"
"""What the name of a conversation begins with, and its keys."""

SPECIAL = 16
"""Places of a task's writes begin here; those below are of LangGraph's special channels."""

MOST_BYTES = 3 * 1024 * 1024
"""How much is saved at once: a request to a service has at most 4 MiB."""
Items = list[dict[str, Any]]


class StepkeepSaver(BaseCheckpointSaver[str]):
    """Keeps checkpoints of threads in `engine.conversations`. Each channel value and each write has at most 1.5 MB.

    `engine` is an `Engine`, an `AsyncEngine` or a client of either form; one of the async form is given where its event
    loop runs. `prune` is not for graphs with delta channels, whose values need the checkpoints before them.
    """

    def __init__(self, engine: Any, *, serde: SerializerProtocol | None = None) -> None:
        super().__init__(serde=serde)
        self._kept = Conversing(engine)

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Versions of two branches differ, so that neither replaces a value of the other."""
        last = 0 if current is None else int(str(current).split(".")[0])
        return f"{last + 1:032}.{random.random():016}"  # noqa: S311 - it only tells branches apart

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self._kept.wait(self._get(config))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await self._kept.run(self._get(config))

    def list(self, config: RunnableConfig | None, **options: Any) -> Iterator[CheckpointTuple]:
        yield from self._kept.wait(self._list(config, **options))

    async def alist(self, config: RunnableConfig | None, **options: Any) -> AsyncIterator[CheckpointTuple]:
        for one in await self._kept.run(self._list(config, **options)):
            yield one

    def put(self, *given: Any, **named: Any) -> RunnableConfig:
        return self._kept.wait(self._put(*given, **named))

    async def aput(self, *given: Any, **named: Any) -> RunnableConfig:
        return await self._kept.run(self._put(*given, **named))

    def put_writes(self, *given: Any, **named: Any) -> None:
        self._kept.wait(self._put_writes(*given, **named))

    async def aput_writes(self, *given: Any, **named: Any) -> None:
        await self._kept.run(self._put_writes(*given, **named))

    def delete_thread(self, thread_id: str) -> None:
        self._kept.wait(self._delete(thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        await self._kept.run(self._delete(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        self._kept.wait(self._delete_for_runs(set(run_ids)))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await self._kept.run(self._delete_for_runs(set(run_ids)))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self._kept.wait(self._copy(source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self._kept.run(self._copy(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        self._kept.wait(self._prune(thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await self._kept.run(self._prune(thread_ids, strategy))

    async def _put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        thread, ns = _thread_of(config)
        values: dict[str, Any] = checkpoint["channel_values"]
        items: Items = [
            {"key": _key(VALUES, ns, channel, version), "ordinal": 0, "value": self._typed(values[channel])}
            for channel, version in new_versions.items()
            if channel in values
        ]
        bare = {name: value for name, value in checkpoint.items() if name != "channel_values"}
        state = {
            "checkpoint": self._typed(bare),
            "metadata": self._typed(get_checkpoint_metadata(config, metadata)),
            "parent": get_checkpoint_id(config),
        }
        # The state comes last: it refers to the values.
        items.append({"key": _key(STATES, ns, checkpoint["id"]), "ordinal": 0, "value": state})
        await self._save(thread, items)
        return _config(thread, ns, checkpoint["id"])

    async def _put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        thread, ns = _thread_of(config)
        key = _key(WRITES, ns, str(get_checkpoint_id(config)), task_id)
        places = [WRITES_IDX_MAP.get(channel, index) for index, (channel, _) in enumerate(writes)]
        items: Items = [
            {
                "key": key,
                "ordinal": place + SPECIAL,
                "keep": place >= 0,
                "value": {"task": task_id, "path": task_path, "channel": channel, "value": self._typed(value)},
            }
            for place, (channel, value) in zip(places, writes, strict=True)
        ]
        await self._save(thread, items)

    async def _save(self, thread: str, items: Items) -> None:
        """Save items in this order, as many at once as fit."""
        some: Items = []
        size = 0
        for one in items:
            size += len(str(one["value"]))
            if some and (size > MOST_BYTES or len(some) == MOST_AT_ONCE):
                await self._kept.ask("save", THREAD + thread, some)
                some, size = [], len(str(one["value"]))
            some.append(one)
        if some:
            await self._kept.ask("save", THREAD + thread, some)

    def _typed(self, value: Any) -> Any:
        kind, data = self.serde.dumps_typed(value)
        return [kind, base64.b64encode(data).decode()]

    def _value(self, told: Any) -> Any:
        return self.serde.loads_typed((told[0], base64.b64decode(told[1])))

    async def _get(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread, ns = _thread_of(config)
        which: dict[str, Any] = {"prefix": _key(STATES, ns, ""), "newest": True, "limit": 1}
        if checkpoint_id := get_checkpoint_id(config):
            which = {"keys": [_key(STATES, ns, checkpoint_id)]}
        found = (await self._kept.ask("read", THREAD + thread, **which)).contents
        return await self._tuple(thread, found[0]) if found else None

    async def _tuple(self, thread: str, state: Item) -> CheckpointTuple:
        ns, checkpoint_id = _named(state)
        bare = self._value(state.value["checkpoint"])
        keys = {_key(VALUES, ns, name, version): name for name, version in bare["channel_versions"].items()}
        kept = self._kept.items(THREAD + thread, keys=list(keys))
        values = {keys[one.key]: self._value(one.value) async for one in kept}
        told = self._kept.items(THREAD + thread, prefix=_key(WRITES, ns, checkpoint_id, ""))
        writes = [(one.value, one.ordinal) async for one in told]
        writes.sort(key=lambda one: writes_sort_key(one[0]["path"], one[0]["task"], one[1]))
        parent = state.value["parent"]
        return CheckpointTuple(
            config=_config(thread, ns, checkpoint_id),
            checkpoint=cast(Checkpoint, {**bare, "channel_values": values}),
            metadata=self._value(state.value["metadata"]),
            parent_config=None if parent is None else _config(thread, ns, parent),
            pending_writes=[(one["task"], one["channel"], self._value(one["value"])) for one, _ in writes],
        )

    async def _list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's own word
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Sequence[CheckpointTuple]:
        threads = await self._threads() if config is None else [_thread_of(config)[0]]
        namespace = None if config is None else config["configurable"].get("checkpoint_ns")
        prefix = f"{STATES} " if namespace is None else _key(STATES, namespace, "")
        only = None if config is None else get_checkpoint_id(config)
        last = None if before is None else get_checkpoint_id(before)
        found: list[CheckpointTuple] = []
        for thread in threads:
            async for state in self._kept.items(THREAD + thread, prefix=prefix, newest=True):
                if limit is not None and len(found) >= limit:
                    return found
                checkpoint_id = _named(state)[1]
                if (only and checkpoint_id != only) or (last and checkpoint_id >= last):
                    continue
                metadata = self._value(state.value["metadata"])
                if all(metadata.get(name) == value for name, value in (filter or {}).items()):
                    found.append(await self._tuple(thread, state))
        return found

    async def _threads(self) -> Sequence[str]:
        found: list[str] = []
        after = THREAD
        while True:
            page = await self._kept.ask("list", after=after)
            mine = [one.name for one in page.conversations if one.name.startswith(THREAD)]
            found += [name.removeprefix(THREAD) for name in mine]
            if not page.more or len(mine) < len(page.conversations):
                return found
            after = mine[-1]

    async def _delete(self, thread: str) -> None:
        with suppress(NotFound):
            await self._kept.ask("delete", THREAD + thread)

    async def _copy(self, source: str, target: str) -> None:
        async for one in self._kept.items(THREAD + source):
            await self._save(target, [{"key": one.key, "ordinal": one.ordinal, "value": one.value}])

    async def _delete_for_runs(self, run_ids: set[str]) -> None:
        for thread in await self._threads() if run_ids else ():
            gone = [
                _named(state)
                async for state in self._kept.items(THREAD + thread, prefix=f"{STATES} ")
                if self._value(state.value["metadata"]).get("run_id") in run_ids
            ]
            await self._remove(thread, gone)

    async def _prune(self, thread_ids: Sequence[str], strategy: str) -> None:
        for thread in thread_ids:
            if strategy == "delete":
                await self._delete(thread)
                continue
            named = [_named(one) async for one in self._kept.items(THREAD + thread, prefix=f"{STATES} ")]
            latest = dict(sorted(named))
            await self._remove(thread, [one for one in named if latest[one[0]] != one[1]])

    async def _remove(self, thread: str, states: Sequence[tuple[str, str]]) -> None:
        """Remove checkpoints with their writes, and values that no other checkpoint has."""
        if not states:
            return
        for ns, one in states:
            prefixes = [_key(STATES, ns, one), _key(WRITES, ns, one, "")]
            await self._kept.ask("remove", THREAD + thread, prefixes=prefixes)
        needed = set[str]()
        async for state in self._kept.items(THREAD + thread, prefix=f"{STATES} "):
            versions = self._value(state.value["checkpoint"])["channel_versions"]
            needed |= {_key(VALUES, _named(state)[0], name, version) for name, version in versions.items()}
        async for value in self._kept.items(THREAD + thread, prefix=f"{VALUES} "):
            if value.key not in needed:
                await self._kept.ask("remove", THREAD + thread, place={"key": value.key, "ordinal": value.ordinal})


def _key(kind: str, ns: str, *parts: Any) -> str:
    """A key whose parts have no spaces."""
    return " ".join([kind, *(quote(str(part), safe=":|") for part in (ns, *parts))])


def _named(state: Item) -> tuple[str, str]:
    """The namespace and the id of a checkpoint."""
    _, ns, checkpoint_id = state.key.split(" ")
    return unquote(ns), unquote(checkpoint_id)


def _thread_of(config: RunnableConfig) -> tuple[str, str]:
    return str(config["configurable"]["thread_id"]), config["configurable"].get("checkpoint_ns", "")


def _config(thread: str, ns: str, checkpoint_id: str) -> RunnableConfig:
    return RunnableConfig(configurable={"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id})
