"""The client of a service for programs with an event loop: the methods of `AsyncEngine`, each a request.

It holds no logic of the engine: the service decides. Requests that may be repeated are sent again after a failure, with
a pause that grows. `stepkeep.client` and `Client` use it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, Unpack
from uuid import uuid4

import msgspec

from stepkeep.client.binding import RemoteOperations, as_at_an_engine, at_a_service, plain, segment
from stepkeep.definition.native.advice import log_ignored_once
from stepkeep.definition.native.reader import CheckReport, accepted
from stepkeep.definition.python.registry import Output, default_registry
from stepkeep.dialects.registry import check_file
from stepkeep.edges.input_files import read_input
from stepkeep.edges.own_process import variables
from stepkeep.engine.arguments import looks_like_a_file
from stepkeep.engine.base import AsyncBase
from stepkeep.engine.groups import AsyncOperations
from stepkeep.engine.result import Result, settled_states, typed
from stepkeep.engine.starting import RunOptions, StartOptions
from stepkeep.kernel.definition import Definition
from stepkeep.kernel.errors import ConnectionLost, InvalidInput, NotAllowed, Problem, StoreUnavailable, Unreachable
from stepkeep.kernel.machine.states import RunState
from stepkeep.network.service import RemoteService, again
from stepkeep.operations.access import parse_key
from stepkeep.operations.operation import needs_database
from stepkeep.operations.people.people import MessageSent
from stepkeep.operations.people.policies import PolicyRevision, PolicyView
from stepkeep.operations.pipeline.start import Started
from stepkeep.operations.runs.run_answers import PastView
from stepkeep.operations.streams.reading import ALL, StreamPiece

if TYPE_CHECKING:
    from stepkeep.conformance.certificate import Certificate
    from stepkeep.definition.python.retry import Duration
    from stepkeep.engine.definitions import Runnable

MAX_DEFINITION_BYTES = 256 * 1024
LONGEST_WAIT = 45.0
"""For how long (seconds) one request waits for a run; `wait` sends as many as it takes."""


class PublishedVersion(msgspec.Struct, frozen=True):
    """The name and version of a published workflow."""

    name: str
    version: int
    dialect: str


class PublishedWorkflow(msgspec.Struct, frozen=True):
    """What `publish` returns; `start` takes it."""

    definition: PublishedVersion
    digest: str
    warnings: tuple[Problem, ...] = ()
    """Advice of the service on the definition. It is logged too, under `stepkeep.definition`."""


class WrittenWorkflow(msgspec.Struct, frozen=True):
    """A workflow as a service reads it, which was checked where it was written."""

    content: bytes
    version: PublishedVersion
    as_: str | None = None
    """The dialect, where the content does not show it."""


@at_a_service
class AsyncClient(AsyncOperations):
    """A service and everything one can do with it. The tenant and the actor are those of the key.

    Operations with a row are those of the engine, sent to the service. What else an engine has is written here, or
    needs the database itself.

    `seconds` limits a request that does not wait for a run.

        async with AsyncClient("https://flows.example.org", key="sk_…") as client:
            result = await client.run("hello", {"name": "Ada"})
    """

    def __init__(self, url: str | os.PathLike[str], *, key: str | None = None, seconds: float = 30.0) -> None:
        given = key if key is not None else variables().get("STEPKEEP_KEY")
        if given is None:
            raise InvalidInput("a service needs a key: key=, or STEPKEEP_KEY.")
        parse_key(given)
        self.service = RemoteService(str(url), given, seconds=seconds)
        self.remote = RemoteOperations(self.service)
        self._known: dict[bytes, PublishedWorkflow] = {}

    def __repr__(self) -> str:
        return f"<stepkeep.AsyncClient of {self.service.url}>"

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Check that the service answers. The key is checked with the first request that needs it."""
        await self.service.ask("GET", "/version")

    async def close(self, *, grace: float | None = None) -> None:
        """Close the connections."""
        await self.service.close()

    async def stop_workers(self, grace: float | None = None) -> None:
        """Nothing to stop: a client has no workers."""

    def __getattr__(self, name: str) -> NoReturn:
        if name in AsyncBase.__annotations__:
            raise needs_database(name)
        raise AttributeError(f"a client has no {name}")

    # -- definitions -------------------------------------------------------------------------------------------------
    async def publish(  # type: ignore[override] # a service has no plans
        self, workflow: Runnable | PublishedWorkflow | WrittenWorkflow
    ) -> PublishedWorkflow:
        """Publish a workflow, or return the published one; a plain name finds the highest published version."""
        if isinstance(workflow, PublishedWorkflow):
            return workflow
        report = CheckReport(definition=None)
        if isinstance(workflow, str) and not looks_like_a_file(workflow):
            told = (await self.versions.show(workflow)).as_json()
        else:
            if isinstance(workflow, WrittenWorkflow):
                content, query = workflow.content, {"as": workflow.as_}
            else:
                content, report, query = written(workflow), _checked(workflow), {}
                accepted(report)
            told = await self.service.ask("POST", "/workflows", content=content, query=query)
        found = told["definition"]
        theirs = msgspec.convert(told.get("warnings", ()), tuple[Problem, ...])
        # The advice from here has the lines and the words of what the caller wrote.
        known = {problem.path for problem in report.warnings}
        warnings = (*report.warnings, *(problem for problem in theirs if problem.path not in known))
        if not isinstance(workflow, WrittenWorkflow):
            log_ignored_once(warnings)
        version = PublishedVersion(found["workflow"], found["version"], found["dialect"])
        return PublishedWorkflow(version, found["digest"], warnings)

    async def publish_policy(self, policy: str | Path | Mapping[str, Any], *, by: str | None = None) -> PolicyRevision:
        """Publish a policy, a file or a mapping, as the next revision of the tenant. Its cases must hold."""
        from stepkeep.definition.policy import publishable_policy
        from stepkeep.definition.text.document import read_document

        if isinstance(policy, Mapping):
            return await super().publish_policy(policy, by=by)
        publishable_policy(policy)  # says what is wrong with the file, and where
        document: Any = read_document(policy).data
        return await super().publish_policy(document, by=by)

    async def show_policy(self, revision: int | None = None) -> PolicyView:
        """A revision of the tenant's policy, the newest by default."""
        if revision is None:
            newest = await self.service.ask("GET", "/policies", query={"limit": 1})
            revision = newest["policies"][0]["revision"] if newest["policies"] else 1
        return await super().show_policy(revision)

    # -- runs --------------------------------------------------------------------------------------------------------
    @as_at_an_engine(AsyncOperations.start)
    async def start(
        self,
        workflow: Runnable | PublishedWorkflow | WrittenWorkflow,
        input: Any = None,  # noqa: A002 - the word users know
        *,
        connection: Any = None,
        webhook_url: str | None = None,
        webhook_secret: str | None = None,
        **options: Unpack[StartOptions],
    ) -> Started:
        """Create a run and, unless `start_now` is False, start it: now, `at` a moment or after a `delay`."""
        here = {"connection": connection, "webhook_url": webhook_url, "webhook_secret": webhook_secret}
        if given := [name for name, value in here.items() if value is not None]:
            raise InvalidInput(f"start: `{given[0]}` needs the database itself: a service has no place for it.")
        key = options.pop("idempotency_key", None)
        return await self._create("/runs", {**await self._named(workflow), "input": input, **options}, key)

    @as_at_an_engine(AsyncOperations.run)
    async def run(
        self,
        workflow: Runnable[Output] | PublishedWorkflow | WrittenWorkflow,
        input: Any = None,  # noqa: A002 - the word users know
        *,
        check: bool = False,
        capabilities: Iterable[str] = (),
        **options: Unpack[RunOptions],
    ) -> Result[Output]:
        """Start a run and wait until it has ended or waits for people or messages. Workers of the service run it."""
        if list(capabilities):
            raise InvalidInput("run: capabilities are those of the workers of the service.")
        started = await self.start(workflow, input, **options)
        result = typed(await self.wait(started.run_id, until_blocked=True), workflow)
        return result.raise_for_state() if check else result

    async def wait(self, run_id: str, *, seconds: float | None = None, until_blocked: bool = False) -> Result:
        """Wait until a run has ended (with `until_blocked`: or waits for people or messages), or until the time is
        over; then look at `finished`."""
        settled = settled_states(until_blocked=until_blocked)
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            left = LONGEST_WAIT if until is None else max(0.0, min(LONGEST_WAIT, until - time.monotonic()))
            told = await again(
                lambda left=left, run_id=run_id: self.service.request(  # type: ignore[misc]
                    "GET",
                    f"/runs/{_path(run_id)}/result",
                    query={"wait": left, "until_blocked": until_blocked},
                    seconds=left + 30,
                )
            )
            found = told.json()
            # A flow may have continued as new.
            run_id = found["run_id"]
            state = RunState(found["state"])
            if found["finished"]:
                return Result(run_id=run_id, state=state, output=found["output"], error=found["error"])
            if state in settled or (until is not None and time.monotonic() >= until):
                return await self.result(run_id)

    async def result(self, run_id: str) -> Result:
        """The current state of a run."""
        view = await self.show(run_id)
        run = view.run
        return Result(run_id=run_id, state=run.state, output=run.output, error=run.error, loaded=view)

    if not TYPE_CHECKING:

        async def show(self, run_id, *, as_=None, step=None, at=None):
            """Everything about a run, or about a step of it; also as it stood, or in the words of a dialect."""
            if at is None:
                return await super().show(run_id, as_=as_, step=step)
            if step is not None or as_ is not None:
                raise InvalidInput("show: `at` goes with neither a step nor a dialect.")
            query = {"time" if isinstance(at, datetime) else "seq": plain(at)}
            found = await self.service.ask("GET", f"/runs/{_path(run_id)}/past", query=query)
            return msgspec.convert(found, PastView)

    async def send(
        self,
        run_id: str | None = None,
        name: str = "",
        payload: Any = None,
        *,
        key: str | None = None,
        correlation_id: str | None = None,
        start: Runnable | PublishedWorkflow | WrittenWorkflow | None = None,
        input: Any = None,  # noqa: A002 - the word users know
        idempotency_key: str | None = None,
        ttl: Duration | None = None,
        message_id: str | None = None,
        by: str | None = None,
    ) -> MessageSent:
        """Send a message to a run, or by business key or correlation id. It is sent once, although its request may be
        repeated."""
        headers = {}
        body: dict[str, Any] = {"name": name, "payload": payload, "id": message_id or str(uuid4()), "by": by}
        if run_id is not None:
            if key is not None or correlation_id is not None or start is not None or ttl is not None:
                raise InvalidInput("send: name the run by its id, or by a key, not by both.")
            path = f"/runs/{_path(run_id)}/messages"
        else:
            path = "/messages"
            body |= {"business_key": key, "correlation_id": correlation_id, "ttl": ttl, "input": input}
            if start is not None:
                body["start"] = (await self._named(start))["workflow"]
                headers["Idempotency-Key"] = idempotency_key or str(uuid4())
        sent = {field: plain(value) for field, value in body.items() if value is not None}
        return msgspec.convert(await self.service.ask("POST", path, body=sent, headers=headers), MessageSent)

    # -- records -----------------------------------------------------------------------------------------------------
    async def log(self, run_id: str, *, as_: str | None = None) -> list[bytes]:
        """The log of a run, one JSON object per line."""
        answer = await again(lambda: self.service.request("GET", f"/runs/{_path(run_id)}/log", query={"as": as_}))
        return answer.body.splitlines(keepends=True)

    async def certify(self, run_id: str) -> Certificate:
        """The judge's certificate of a run."""
        from stepkeep.conformance.certificate import Certificate

        return msgspec.convert(await self.service.ask("GET", f"/runs/{_path(run_id)}/certificate"), Certificate)

    async def evidence(self, run_id: str, *, signing_key: str | Path | None = None, payloads: bool = True) -> bytes:
        """The evidence pack of a finished run."""
        if signing_key is not None:
            raise InvalidInput("evidence: a key that signs stays where it is: sign at the database.")
        answer = await again(
            lambda: self.service.request("GET", f"/runs/{_path(run_id)}/evidence", query={"payloads": payloads})
        )
        return answer.body

    async def metrics(self) -> str:
        """The metrics of the process that answers, in the text format of Prometheus."""
        headers = {"Accept": "text/plain"}
        return (await again(lambda: self.service.request("GET", "/metrics", headers=headers))).body.decode()

    async def follow(self, run_id: str, *, after: int = 0) -> AsyncIterator[dict[str, Any]]:
        """The journal of a run as it grows, until the run has ended. A broken connection is resumed where it broke."""
        last, tries = after, 0
        while True:
            try:
                async with self.service.events(
                    f"/runs/{_path(run_id)}/stream", last_id=None if last == 0 else str(last)
                ) as events:
                    async for event in events:
                        tries = 0
                        if event.name == "end":
                            return
                        if event.name == "entry":
                            entry = event.json()
                            last = entry["seq"]
                            yield entry
            except (ConnectionLost, Unreachable, StoreUnavailable):
                tries += 1
                if tries > 20:
                    raise
            await asyncio.sleep(min(2.0, 0.1 * 2 ** min(tries, 5)))

    async def tail(
        self, run_id: str, name: str | None = None, *, step: str | None = None, after: int = 0
    ) -> AsyncIterator[StreamPiece]:
        """The pieces of a stream of a run as it grows, or of all its streams. A broken connection is resumed."""
        path, query = f"/runs/{_path(run_id)}/streams/{_path(name or ALL)}", None if step is None else {"step": step}
        last, tries = after, 0
        while True:
            try:
                events = self.service.events(path, last_id=None if last == 0 else str(last), query=query)
                async with events as told:
                    async for event in told:
                        tries = 0
                        if event.name == "end":
                            return
                        if event.name == "piece":
                            piece = msgspec.convert(event.json(), StreamPiece)
                            last = piece.number
                            yield piece
            except (ConnectionLost, Unreachable, StoreUnavailable):
                tries += 1
                if tries > 20:
                    raise
            await asyncio.sleep(min(2.0, 0.1 * 2 ** min(tries, 5)))

    # -- inside ------------------------------------------------------------------------------------------------------
    async def _create(self, path: str, body: Mapping[str, Any], idempotency_key: str | None) -> Started:
        headers = {"Idempotency-Key": idempotency_key or str(uuid4())}
        sent = {name: plain(value) for name, value in body.items() if value is not None}
        told = await self.service.ask("POST", path, body=sent, headers=headers)
        # With a key of our own, a repeated request has created it, too.
        return Started(told["run_id"], told["created"] or idempotency_key is None)

    async def _named(self, workflow: Runnable | PublishedWorkflow | WrittenWorkflow) -> Mapping[str, Any]:
        """What to start, by name and version. A workflow that is no name is published first, once."""
        if isinstance(workflow, str) and not looks_like_a_file(workflow):
            return {"workflow": workflow}
        if isinstance(workflow, PublishedWorkflow):
            return {"workflow": workflow.definition.name, "version": workflow.definition.version}
        content = workflow.content if isinstance(workflow, WrittenWorkflow) else written(workflow)
        known = self._known.get(content)
        if known is None:
            known = self._known[content] = await self._publish_or_find(workflow)
        return {"workflow": known.definition.name, "version": known.definition.version}

    async def _prepare_start(self, *given: object, **options: object) -> NoReturn:
        raise InvalidInput("start: `connection` needs the database itself: a service has no place for it.")

    async def _publish_or_find(self, workflow: Runnable | WrittenWorkflow) -> PublishedWorkflow:
        from stepkeep.definition.python.workflow import Workflow

        try:
            return await self.publish(workflow)
        except NotAllowed as refusal:
            # A key that may not publish starts what is published already.
            if refusal.rule != "scope" or not isinstance(workflow, Workflow | WrittenWorkflow):
                raise
            if isinstance(workflow, WrittenWorkflow):
                return PublishedWorkflow(workflow.version, "")
            definition = workflow.definition()
            return PublishedWorkflow(PublishedVersion(definition.name, definition.version, definition.dialect), "")


def written(workflow: Runnable, *, elsewhere: bool = False) -> bytes:
    """A workflow as the service reads it. `elsewhere`: the code of its handlers is not here."""
    from stepkeep.definition.python.declared import declare
    from stepkeep.definition.python.workflow import Workflow

    if isinstance(workflow, Workflow):
        text = msgspec.json.encode(workflow.document()).decode()
        return _with_handlers(text, {**declare(workflow.registry, text), "elsewhere": True})
    if isinstance(workflow, str | Path):
        try:
            text = read_input(workflow, MAX_DEFINITION_BYTES).decode()
        except OSError as problem:
            raise InvalidInput(f"{workflow} cannot be read: {problem.strerror or problem}.") from None
        except UnicodeDecodeError:
            raise InvalidInput(f"{workflow} is no text in UTF-8.") from None
        return _with_handlers(
            text, {"handlers": {}, "elsewhere": True} if elsewhere else declare(default_registry, text)
        )
    kind = "definition" if isinstance(workflow, Definition) else type(workflow).__name__
    raise InvalidInput(f"a {kind} cannot be sent to a service. Pass a Workflow, a file or a published name.")


def _with_handlers(text: str, declared: dict[str, Any]) -> bytes:
    """A definition with what the decorators of its handlers say: the service has no code to ask."""
    return msgspec.json.encode({"definition": text, **declared})


def _checked(workflow: Runnable) -> CheckReport:
    """The report on what `written` sends, with the places where the caller wrote it."""
    from stepkeep.definition.python.workflow import Workflow

    if isinstance(workflow, Workflow):
        return workflow.check()
    assert isinstance(workflow, str | Path)
    return check_file(workflow, default_registry)


def _path(text: object) -> str:
    return segment("the name in the address", text)
