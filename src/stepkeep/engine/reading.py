"""The engine's part that reads: runs, their logs and evidence, approvals, the state of the system; and retention.

Each method checks its arguments and calls operations. It decides nothing about a run. `AsyncEngine` inherits it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, overload

from msgspec import Meta

from stepkeep.definition import arguments
from stepkeep.dialects.registry import names as dialects
from stepkeep.edges.safe_text import type_name
from stepkeep.engine.arguments import duration, moment, optional_key, run_states
from stepkeep.engine.base import AsyncBase
from stepkeep.engine.hosted import vitals_of
from stepkeep.engine.result import Result
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.states import RunState
from stepkeep.operations import validate
from stepkeep.operations.access import READ, Scope
from stepkeep.operations.answers import says
from stepkeep.operations.logs import retention
from stepkeep.operations.logs.lines import encode_line
from stepkeep.operations.logs.log import export_run
from stepkeep.operations.operation import Actor, Limit, Name, Row, RunId, Time, Words, group, operation
from stepkeep.operations.people import approvals
from stepkeep.operations.people.approvals import ApprovalList
from stepkeep.operations.runs import diagnosis, projected, views
from stepkeep.operations.runs.diagnosis import ExplanationView
from stepkeep.operations.runs.failing import ErrorList, read_errors
from stepkeep.operations.runs.run_answers import PastView, RunDifferences, RunList, RunView, StepView
from stepkeep.operations.runs.run_differences import compare_runs
from stepkeep.operations.runs.search import Terms, search_runs
from stepkeep.operations.runs.statistics import StatisticsView, read_statistics
from stepkeep.operations.runs.status import StatusView, WorkerList, list_workers, read_status
from stepkeep.operations.typed import InPython
from stepkeep.store.records import RunFilter

if TYPE_CHECKING:
    from stepkeep.conformance.certificate import Certificate
    from stepkeep.evidence.heads import HeadsSigned

MOST_AT_ONCE = 10_000

Bounded = Annotated[str, Meta(max_length=255)]
As = Annotated[
    str | None,
    InPython(Annotated[str, Meta(pattern=f"^({'|'.join(dialects())})$")] | None),
    says(f"In the words of a dialect: {', '.join(dialects())}."),
]
At = Annotated[int | datetime | None, InPython(str | None)]
Window = Annotated[str, InPython(Annotated[str, Meta(max_length=100)]), says("How far back it looks.")]
Asked = Annotated[str | None, InPython(Bounded | None)]
States = Annotated[
    RunState | Sequence[RunState], InPython(list[RunState]), says("Only in these states; may be repeated.")
]
Labels = Annotated[
    dict[str, str] | None,
    InPython(Annotated[list[str], Meta(max_length=64)] | None),
    says("`NAME=TEXT`; may be repeated."),
]
Since = Annotated[datetime | None, InPython(Time | None), says("Started at or after this time.")]
Until = Annotated[datetime | None, InPython(Time | None), says("Started at or before this time.")]
ErrorPart = Annotated[str | None, InPython(Bounded | None), says("A part of the error.")]
AnyPart = Annotated[str | None, InPython(Bounded | None), says("A part of ids, keys, labels or input.")]
RunCursor = Annotated[
    str | None,
    InPython(Annotated[str, Meta(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")] | None),
    says("`next` of the page before."),
]
Cursor = Annotated[str | None, InPython(Bounded | None), says("`next` of the page before.")]
Earlier = Annotated[Bounded | None, says("The earlier one; by default the run that the other one repeats.")]
StepName = Annotated[Name | None, says("One step.")]


@group("", "System")
class AsyncReading(AsyncBase):
    """What can be read of runs, and of the system."""

    async def result(self, run_id: str) -> Result:
        """The current state of a run.

        >>> started = engine.start(order, {"amount": 10})
        >>> print(engine.work_on(started.run_id).waiting_for[0].step)
        sign-off
        >>> print(engine.result(started.run_id).state)
        blocked
        """
        view = await self.show(run_id)
        run = view.run
        return Result(run_id=run_id, state=run.state, output=run.output, error=run.error, loaded=view)

    @overload
    async def show(self, run_id: RunId) -> RunView: ...
    @overload
    async def show(self, run_id: RunId, *, step: str) -> StepView: ...
    @overload
    async def show(self, run_id: RunId, *, at: int | datetime) -> PastView: ...
    @overload
    async def show(self, run_id: RunId, *, as_: str | None) -> Mapping[str, Any]: ...
    @operation(  # type: ignore[misc]
        READ,
        "GET /runs/{run_id}",
        "get_run",
        "Show a run",
        tag="Runs",
        done="The run and its steps",
        here=("step", "at"),
        words="as_",
        answer=RunView,
        elsewhere=[
            Row(
                READ,
                "GET /runs/{run_id}/steps/{step:path}",
                "get_step",
                "Show a step",
                tag="Steps",
                here=("as_", "at"),
                answer=StepView,
            )
        ],
    )
    async def show(
        self, run_id: RunId, *, as_: As = None, step: StepName = None, at: At = None
    ) -> RunView | StepView | PastView | dict[str, Any]:
        """Everything about a run, in canonical names or in the shape of a dialect.

        With `step`, that step alone, with the evidence of its attempts: traceback, inputs given, log lines. With `at`,
        the run as it stood after that entry of its journal, or at that time, told from the journal alone.

        >>> done = engine.run(hello, {"name": "Ada"})
        >>> for step in engine.show(done.run_id).steps:
        ...     print(step.name, step.state, step.attempts[-1].error)
        greet succeeded None
        >>> print(engine.show(done.run_id, at=1).run.state)
        queued
        """
        run_id = validate.run_id(run_id)
        if at is not None:
            return await self._show_past(run_id, at, alone=as_ is None and step is None)
        if step is not None and as_ is not None:
            raise InvalidInput("show: give a step or a dialect, not both.")
        if step is not None:
            step = validate.key("the name of a step", step)
            return await views.describe_step(self.transactor, run_id, step, tenant=self.tenant)
        if as_ is not None:
            return dict(await projected.describe_run_as(self.transactor, run_id, as_, tenant=self.tenant))
        return await views.describe_run(self.transactor, run_id, tenant=self.tenant)

    async def _show_past(self, run_id: str, at: int | datetime, *, alone: bool) -> PastView:
        from stepkeep.evidence.past import show_past

        if not alone:
            raise InvalidInput("show: `at` goes with neither a step nor a dialect.")
        if isinstance(at, datetime):
            return await show_past(self.transactor, run_id, tenant=self.tenant, at=moment("show: at", at))
        seq = arguments.whole("show: at, the number of an entry", at, 1, 2**31)
        return await show_past(self.transactor, run_id, tenant=self.tenant, seq=seq)

    @operation(
        READ,
        "GET /explain",
        "explain",
        "Why does a queue, a worker or a run not move?",
        agents="reads",
        elsewhere=[
            Row(
                READ,
                "GET /runs/{run_id}/explain",
                "explain_run",
                "Why does a run not move?",
                tag="Records",
                names={"what": "run_id"},
            )
        ],
    )
    async def explain(
        self, what: Annotated[Words, says("A run, a queue or a worker.")], step: StepName = None
    ) -> ExplanationView:
        """Why a run (or one of its steps), a queue or a worker does not move, and the command that moves it.

        `causes` is the chain, most urgent first: each has a `code`, a `sentence`, `since`, `until` and a `command`.
        `stuck` is True only where no transition is enabled at all.

        >>> started = engine.start(hello, {"name": "Ada"}, start_now=False)
        >>> print(engine.explain(started.run_id).causes[0].code)
        not_started
        """
        step = None if step is None else validate.key("the name of a step", step)
        what = validate.words("what to explain", what)
        return diagnosis.view(
            await diagnosis.explain(self.transactor, what, step, tenant=self.tenant, access=self.access)
        )

    @operation(
        READ,
        "GET /approvals",
        "list_approvals",
        "List open gates",
        tag="Approvals",
        names={"after": "cursor"},
        pages="approvals",
        agents="reads",
    )
    async def approvals(
        self,
        *,
        mine: Annotated[bool, says("Only those that the caller may decide.")] = False,
        late: Annotated[bool, says("Only those that were not decided in time.")] = False,
        after: Cursor = None,
        limit: Limit = 50,
        by: Actor = None,
    ) -> ApprovalList:
        """A page of open gates, oldest run first: what is asked, by whom, what is shown, who has decided, until when.

        `may_decide` says whether this person (`by`, the actor by default) may approve; `refusal` says why not. With
        `mine`, only those that they may; with `late`, only those that were not decided in time: their deadline has
        passed, or they were escalated. `after` is the `next` of the page before.

        >>> waiting = engine.run(order, {"amount": 30})
        >>> [(one.step, one.may_decide) for one in engine.approvals(by="bea").approvals]
        [('sign-off', True)]
        >>> engine.reject(waiting.run_id, by="bea")["decision"]
        'rejected'
        """
        reader = approvals.GateReader(
            caller=self._caller(by).bearer,
            mine=mine,
            late=late,
            barred=self.access.lacks(Scope.DECIDE, operation="approve"),
        )
        return await approvals.list_approvals(self.transactor, reader, after=after, limit=limit)

    @operation(READ, "GET /status", "get_status", "The whole system in numbers", agents="reads")
    async def status(self, *, window: Window = "1h") -> StatusView:
        """The whole system in numbers: runs by state, queues, failures by category, workers, late timers.

        Runs are counted by state up to 200,000; of more, the parts are estimated from a sample (`is_estimate`). A
        total without `is_complete` is a lower bound. `window` says how far back failures and recent runs are counted.
        `problems` lists in sentences what needs attention.

        >>> engine.status().status.stuck_runs
        []
        """
        return await read_status(self.transactor, tenant=self.tenant, window=duration("status: window", window))

    @operation(READ, "GET /statistics", "get_statistics", "How the newest runs went", agents="reads")
    async def statistics(self, *, window: Window = "24h") -> StatisticsView:
        """How the newest runs went: how many over time, how long they took, failures, slow steps, the backlog's age.

        Of more than 5,000 runs within `window`, a sample is looked at, and its numbers are scaled (`is_estimate`).

        >>> engine.statistics(window="1h").statistics.runs.is_complete
        True
        """
        taken = duration("statistics: window", window)
        return await read_statistics(self.transactor, tenant=self.tenant, window=taken)

    @operation(READ, "GET /errors", "get_errors", "The errors that stopped runs, grouped", agents="reads")
    async def errors(self, *, window: Window = "24h", workflow: Asked = None) -> ErrorList:
        """The errors that stopped runs: grouped by workflow, step, category and message without its numbers.

        The newest 5,000 stopped runs within `window` are looked at; a run that was cancelled is none of them.

        >>> engine.errors(window="1h").is_complete
        True
        """
        taken = duration("errors: window", window)
        return await read_errors(self.transactor, tenant=self.tenant, window=taken, workflow=workflow)

    async def metrics(self) -> str:
        """The metrics of this process in the text format of Prometheus, for an endpoint of the host program.

        Counting begins with the first call. It needs the extra `server`; docs/observing.md has every name.

        >>> "step_retries_total 0.0" in engine.metrics()
        True
        """
        if self._exposition is None:
            try:
                from stepkeep.metrics.exposition import Exposition
            except ImportError:
                said = "metrics need one more library. Install it: pip install 'stepkeep[server]'."
                raise InvalidInput(said) from None
            self._exposition = Exposition(self.transactor, tenant=self.tenant, workers=lambda: vitals_of(self._hosted))
            self._exposition.begin()
        body, _ = await self._exposition.text()
        return body.decode()

    @operation(
        READ,
        "GET /runs/{run_id}/compare",
        "compare_runs",
        "Compare two runs",
        tag="Records",
        names={"first": "other", "second": "run_id"},
    )
    async def compare_runs(self, first: Earlier, second: RunId) -> RunDifferences:
        """What differs between two runs: states, errors, outputs, attempts and costs, step by step.

        >>> one, other = (engine.run(hello, {"name": name}).run_id for name in ("Ada", "Bea"))
        >>> [difference.field for difference in engine.compare_runs(one, other).run]
        ['input', 'output']
        """
        other = validate.run_id(second)
        one = (await self.show(other)).run.rerun_of or other if first is None else validate.run_id(first)
        return await compare_runs(self.transactor, one, other, tenant=self.tenant)

    @operation(
        READ,
        "GET /workers",
        "list_workers",
        "List workers",
        names={"live_only": "live"},
        pages="workers",
        page_key="id",
        agents="reads",
    )
    async def workers(
        self, *, live_only: Annotated[bool, says("Only those that are not shut down.")] = True
    ) -> WorkerList:
        """What each worker serves and how much it holds.

        >>> engine.workers().workers
        []
        """
        return await list_workers(self.transactor, tenant=self.tenant, live_only=live_only)

    @overload
    async def runs(
        self,
        *,
        state: RunState | Sequence[RunState] = ...,
        workflow: str | None = ...,
        business_key: str | None = ...,
        correlation_id: str | None = ...,
        labels: dict[str, str] | None = ...,
        since: datetime | None = ...,
        until: datetime | None = ...,
        error: str | None = ...,
        text: str | None = ...,
        roots: bool = ...,
        before: str | None = ...,
        limit: int = ...,
    ) -> RunList: ...
    @overload
    async def runs(self, *, as_: str | None, **which: Any) -> Mapping[str, Any]: ...
    @operation(  # type: ignore[misc]
        READ,
        "GET /runs",
        "list_runs",
        "List and search runs",
        tag="Runs",
        done="A page of runs",
        names={"before": "cursor", "labels": "label"},
        pages="runs",
        kept=("total", "is_complete"),
        words="as_",
        answer=RunList,
        agents="reads",
    )
    async def runs(
        self,
        *,
        state: States = (),
        workflow: Asked = None,
        business_key: Asked = None,
        correlation_id: Asked = None,
        labels: Labels = None,
        since: Since = None,
        until: Until = None,
        error: ErrorPart = None,
        text: AnyPart = None,
        roots: Annotated[bool, says("Only runs that are not the child of another one.")] = False,
        before: RunCursor = None,
        limit: Limit = 50,
        as_: As = None,
    ) -> RunList | dict[str, Any]:
        """A page of runs, newest first; `before` is the id of the last run of the page before.

        `since` and `until` bound the start, `error` and `text` are found anywhere in the error, or in ids, keys, labels
        and input. `roots` leaves out child runs. `total` counts those that match from `before` on; where `is_complete`
        is False, there may be more. Labels and texts are looked for in a bounded number of runs. If there are more, the
        answer has `looked_at`, and the same call with `before=answer.next` goes on, until `next` is None.

        >>> done = engine.run(hello, {"name": "Ada"}, correlation_id="customer-7")
        >>> [run.id == done.run_id for run in engine.runs(correlation_id="customer-7").runs]
        [True]
        """
        which = RunFilter(
            tenant=self.tenant,
            states=run_states(state),
            workflow=optional_key("the workflow to look for", workflow),
            business_key=optional_key("the key to look for", business_key),
            correlation_id=optional_key("the id to look for", correlation_id),
            before=None if before is None else validate.run_id(before),
            limit=limit,
        )
        terms = Terms(
            labels=validate.labels(_labels(labels)),
            since=moment("runs: since", since),
            until=moment("runs: until", until),
            error=None if error is None else validate.words("the error to look for", error),
            text=None if text is None else validate.words("the text to look for", text),
            roots=roots,
        )
        if as_ is None:
            return await search_runs(self.transactor, which, terms)
        if not terms.is_empty:
            raise InvalidInput("runs: labels, times and texts are searched for in canonical names, without `as_`.")
        return dict(await projected.list_runs_as(self.transactor, which, as_))

    async def log(self, run_id: str, *, as_: str | None = None) -> list[bytes]:
        """The run's exported log, in canonical names or in a dialect. Its first line holds the definition.

        >>> done = engine.run(hello, {"name": "Ada"})
        >>> b"run_state_transition" in engine.log(done.run_id)[1]
        True
        """
        lines = export_run(self.transactor, validate.run_id(run_id), tenant=self.tenant, dialect=as_)
        return [encode_line(line) async for line in lines]

    async def certify(self, run_id: str) -> Certificate:
        """The judge's certificate of a run: its journal, its log in every dialect, its definition and payloads.

        >>> done = engine.run(hello, {"name": "Ada"})
        >>> engine.certify(done.run_id).ok
        True
        """
        from stepkeep.evidence.collect import collect

        return await (await collect(self.transactor, run_id, tenant=self.tenant)).certificate()

    async def evidence(self, run_id: str, *, signing_key: str | Path | None = None, payloads: bool = True) -> bytes:
        """The evidence pack of a finished run: an archive that an auditor can verify without Stepkeep.

        `signing_key` names the file of a signing key: the head of the run and the pack are signed with it. Without
        `payloads`, inputs and outputs are left out; their digests in the journal remain.

        >>> done = engine.run(hello, {"name": "Ada"})
        >>> engine.evidence(done.run_id)[:2]
        b'PK'
        """
        from stepkeep.evidence.collect import collect
        from stepkeep.evidence.heads import pack_line
        from stepkeep.evidence.pack import pack_files, zipped
        from stepkeep.evidence.signing import pack_signatures, read_key
        from stepkeep.evidence.verifier import MANIFEST

        arguments.flag("evidence: payloads", payloads)
        if signing_key is not None and not isinstance(signing_key, str | os.PathLike):
            raise InvalidInput(f"evidence: signing_key is the path of a file, not a {type_name(signing_key)}.")
        key = None if signing_key is None else read_key(Path(signing_key))
        found = await collect(self.transactor, run_id, tenant=self.tenant)
        made = pack_files(await found.contents(payloads=payloads))
        now = await self.store.now()
        signatures = [] if key is None else pack_signatures(key, found.whole.record.run, made[MANIFEST], now)
        kept = await self.store.read_signed_heads(self.tenant, found.whole.record.run.id)
        return zipped(made, [*signatures, *(pack_line(one) for one in kept)])

    async def sign_heads(self, signing_key: str | Path, *, limit: int = 10_000) -> HeadsSigned:
        """Sign the end of the journal of each finished run that the key has not signed; a pack has these signatures.

        It is called on a timer, soon after runs end, where only operators have the key. No run waits for it.

        >>> from stepkeep.evidence.signing import new_key, write_key
        >>> write_key(Path("heads.key"), new_key())
        >>> done = engine.run(hello, {"name": "Ada"})
        >>> engine.sign_heads("heads.key").is_complete
        True
        """
        from stepkeep.evidence.heads import sign_heads
        from stepkeep.evidence.signing import read_key

        if not isinstance(signing_key, str | os.PathLike):
            raise InvalidInput(f"sign_heads: signing_key is the path of a file, not a {type_name(signing_key)}.")
        arguments.whole("sign_heads: limit", limit, 1, 10**9)
        return await sign_heads(self.transactor, read_key(Path(signing_key)), tenant=self.tenant, limit=limit)

    async def prune(
        self,
        *,
        archive: str | Path | None,
        older_than: str | None = None,
        keep: int | None = None,
        workflow: str | None = None,
        forget_keys: str | None = None,
        forget_audit: str | None = None,
        forget_firings: str | None = None,
        forget_jobs: str | None = None,
        dry_run: bool = False,
        batch: int = retention.BATCH,
        told: retention.Told | None = None,
    ) -> retention.Pruned:
        """Archive finished runs, then delete them: those that ended long enough ago and are not among the newest.

        `archive` names a folder; None deletes without a trace. Durations are written as in definitions: "30d".

        >>> engine.prune(archive="archive", older_than="30d", dry_run=True).found
        0
        """
        policy = retention.Policy(
            older_than=None if older_than is None else duration("older_than", older_than),
            keep=keep,
            workflow=workflow,
            forget_keys=None if forget_keys is None else duration("forget_keys", forget_keys),
            forget_audit=None if forget_audit is None else duration("forget_audit", forget_audit),
            forget_firings=None if forget_firings is None else duration("forget_firings", forget_firings),
            forget_jobs=None if forget_jobs is None else duration("forget_jobs", forget_jobs),
        )
        if archive is not None and not isinstance(archive, str | os.PathLike):
            raise InvalidInput(f"prune: archive is the path of a folder, not a value of type {type_name(archive)}.")
        if told is not None and not callable(told):
            raise InvalidInput(f"prune: told is a function, not a value of type {type_name(told)}.")
        arguments.flag("prune: dry_run", dry_run)
        folder = None if archive is None else Path(archive)
        size = arguments.whole("prune: batch", batch, 1, MOST_AT_ONCE)
        return await retention.prune(
            self.transactor,
            policy,
            tenant=self.tenant,
            folder=folder,
            dry_run=dry_run,
            batch=size,
            told=told or (lambda pruned: None),
        )


def _labels(given: Any) -> Any:
    """Labels by name; a request has them as `NAME=TEXT`."""
    if given is None:
        return {}
    if type(given) is not list or any(type(one) is not str for one in given):
        return given
    found = [one.partition("=") for one in given]
    if any(not name or not is_there for name, is_there, _ in found):
        raise InvalidInput("a label to search for has the form NAME=TEXT.")
    return {name: text for name, _, text in found}
