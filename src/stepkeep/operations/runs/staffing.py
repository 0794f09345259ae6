"""Which workers could take the steps of a queue, and what the others lack. Explains queues and workers.

Pure: from what workers offer, what queues ask for and a time to causes. It reads no database. `explain` and `diagnosis`
call it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stepkeep.definition.expressions.scope import secrets_among
from stepkeep.definition.native.build import flow_version, given_words, handlers_among, in_words
from stepkeep.definition.python.registry import kind_of
from stepkeep.definition.text.document import nearest
from stepkeep.kernel.definition import QueueSpec
from stepkeep.operations.instants import instant
from stepkeep.operations.limits.pauses import NONE, Pauses
from stepkeep.operations.remote.services import Known, Lack, Service, WaitingStep, kinds_of
from stepkeep.operations.runs.causes import ATTENTION, Cause, Explanation, PausedBy, Why, listed, queue_words, span
from stepkeep.store.records import Backlog

MODULE = "MODULE_OR_FILE.py"
"""Stands for code that no known worker was given."""


def judge(
    spec: QueueSpec,
    number: int,
    workers: Sequence[Known],
    former: Sequence[Service],
    now: int,
    wanted: WaitingStep | None = None,
    tenant: str = "default",
) -> tuple[Why, str, tuple[str, ...]]:
    """Which of the workers could take a step of this queue (`wanted`, if given), and if none, what all of them lack."""
    live = [known for known in workers if known.is_live(now)]
    start = start_command(spec, [*(known.service for known in workers if known.service is not None), *former], tenant)
    needs = title(spec)
    if not live:
        silent = [known for known in workers if known.is_silent(now)]
        last = max(silent, key=lambda known: known.row.heard_at, default=None)
        heard = "" if last is None else f" ({last.row.id} was last heard {span(now - last.row.heard_at)} ago)"
        return Why.NO_WORKER, f"it needs {needs}, and no worker is alive{heard}", start
    lacks = {known.row.id: known.lacks(spec, number, wanted) for known in live}
    able = [known for known in live if not lacks[known.row.id]]
    roomy = [known for known in able if known.service is None or known.service.has_room_for(spec)]
    if roomy:
        return Why.SOON, f"worker {roomy[0].row.id} serves it and has room: it will be claimed soon", ()
    if able:
        loads = listed([f"{known.row.id} holds {_load(known.service)}" for known in able])
        return Why.FULL, f"every worker that serves it is full: {loads}", start
    count = f"{len(live)} worker is alive" if len(live) == 1 else f"{len(live)} workers are alive"
    match _decisive(lacks.values()):
        case Lack.HANDLER:
            names = [name for known in live if known.service is not None for name in known.service.handlers]
            lacking = [name for name in (spec.name, *handlers_among(spec.capabilities)) if name not in names]
            close = nearest(lacking[0], names) if lacking else None
            meant = f"; the nearest name is {close}" if close else ""
            return Why.NO_HANDLER, f"it needs {needs}, and no live worker has that handler ({count}{meant})", start
        case Lack.VERSION:
            others = listed([f"worker {known.row.id} has {_versions(known, spec)}" for known in live])
            said = f"it needs version {flow_version(spec.capabilities)} of flow {spec.name}, and no live worker has it"
            return Why.NO_VERSION, f"{said}: {others}", start
        case Lack.KIND:
            return Why.FORBIDDEN, f"it needs {needs}, and no live worker may do that ({count})", start
        case Lack.CAPABILITY:
            return Why.NO_CAPABILITY, f"it needs {needs}, and no live worker has the capability ({count})", start
        case Lack.SECRET:
            missing = [
                name
                for name in secrets_among(spec.capabilities)
                if not any(known.service is not None and known.service.has_secret(name) for known in live)
            ]
            lacked = listed(missing or list(secrets_among(spec.capabilities)))
            said = f"it reads the secret {lacked}, which no live worker has ({count}); give it to a worker"
            return Why.NO_SECRET, said, start
        case Lack.FIT:
            said = listed(
                [
                    f"worker {known.row.id} hands it back: {wrong.text}"
                    for known in live
                    if (wrong := known.misfit(spec, wanted)) is not None
                ]
            )
            return Why.MISFIT, f"it needs {needs}, and {said}", start
        case Lack.RUN:
            own = listed(
                [
                    f"worker {known.row.id} serves {known.service.own_runs}"
                    for known in live
                    if known.service is not None and known.service.own_runs is not None
                ]
            )
            return Why.ONLY_RUN, f"it needs {needs}, and no live worker takes it: {own}", start
        case _:
            served = listed(
                [f"{known.row.id} serves only {_groups(known.service)}" for known in live if known.service is not None]
            )
            where = f"queue {spec.group}" if spec.group else "the default queue"
            return Why.NO_QUEUE, f"it is in {where}, which no live worker serves: {served}", start


def _decisive(lacks: Iterable[tuple[Lack, ...]]) -> Lack:
    """What to tell: the lack of the worker that comes closest, which has the fewest and the last in order."""
    order = list(Lack)
    closest = min(lacks, key=lambda some: (len(some), -order.index(some[0])))
    return closest[0]


def start_command(spec: QueueSpec | None, offers: Iterable[Service], tenant: str) -> tuple[str, ...]:
    """The command for a worker that serves a queue, with the code that a known worker has for it."""
    apps: tuple[str, ...] = ()
    if spec is None or kind_of(spec) in ("python", "agent") or handlers_among(spec.capabilities):
        has = [one for one in offers if spec is None or _has_code(one, spec)]
        apps = next((one.apps for one in has if one.apps), (MODULE,))
    code = tuple(word for app in apps for word in ("--app", app))
    asked = given_words(spec.capabilities if spec else ())
    skills = tuple(word for skill in asked for word in ("--capability", skill))
    group = ("--queue", spec.group) if spec is not None and spec.group else ()
    commands = ("--allow-commands", tenant) if spec is not None and "command" in kinds_of(spec) else ()
    return ("worker", *code, *skills, *group, *commands)


def _has_code(offer: Service, spec: QueueSpec) -> bool:
    """Whether a worker has the handlers that a queue asks for."""
    names = {"python": offer.handlers, "agent": offer.agents}.get(spec.kind, (spec.name,))
    return spec.name in names and offer.has_rule_handlers(spec) and offer.has_flow(spec)


def _versions(known: Known, spec: QueueSpec) -> str:
    """The versions of a flow that a worker has, in words."""
    versions = sorted({} if known.service is None else known.service.flows.get(spec.name, {}))
    return f"version{'s' if len(versions) > 1 else ''} {listed([str(one) for one in versions])}" if versions else "none"


def pause_of(spec: QueueSpec, pauses: Pauses) -> PausedBy | None:
    """The pause that keeps workers from this queue; that of the tenant comes first."""
    if pauses.of(spec) is None:
        return None
    return PausedBy(scope="queue", queue=spec.group) if pauses.tenant is None else PausedBy(scope="tenant")


def queue_paused(spec: QueueSpec, pauses: Pauses) -> tuple[Why, str, tuple[str, ...]] | None:
    """Who paused this queue, in words, and the command that ends it; None if it is not paused."""
    note, pause = pauses.of(spec), pause_of(spec, pauses)
    if note is None or pause is None:
        return None
    is_all = pause.scope == "tenant"
    what = "the tenant" if is_all else queue_words(spec.group)
    command = ("resume", "--all") if is_all else ("resume", "--queue", spec.group)
    why = f": {note.reason}" if note.reason else ""
    return Why.PAUSED, f"{what} is paused by {note.by} since {instant(note.at)}{why}", command


def title(spec: QueueSpec) -> str:
    """What a queue asks of a worker, in words."""
    if kind_of(spec) != spec.kind:
        said = "a worker that runs git"
    elif spec.kind in ("python", "agent"):
        said = f"{'handler' if spec.kind == 'python' else 'agent'} {spec.name}"
    else:
        said = {"command": "a worker that runs commands", "http": "a worker that makes HTTP calls"}.get(
            spec.kind, "any worker"
        )
    if spec.capabilities:
        said += f" with {in_words(spec.capabilities)}"
    return f"{said} in queue {spec.group}" if spec.group else said


def explain_queue(
    name: str,
    specs: Mapping[int, QueueSpec],
    backlog: Sequence[Backlog],
    workers: Sequence[Known],
    former: Sequence[Service],
    now: int,
    pauses: Pauses = NONE,
    tenant: str = "default",
) -> Explanation:
    """Why the steps of a named queue (the default one is "") are not claimed."""
    subject = queue_words(name)
    causes = []
    for one in backlog:
        spec = specs[one.queue]
        why, text, command = queue_paused(spec, pauses) or judge(spec, one.queue, workers, former, now, tenant=tenant)
        steps = "1 step has" if one.depth == 1 else f"{one.depth:,} steps have"
        said = f"{steps} waited, the oldest for {span(now - one.oldest_at)}; {text}."
        pause = pause_of(spec, pauses)
        causes.append(
            Cause(code=why, subject=title(spec), sentence=said, since=one.oldest_at, command=command, pause=pause)
        )
    causes.sort(key=lambda cause: ATTENTION[cause.code])
    if not causes:
        causes = [Cause(code=Why.EMPTY, subject=subject, sentence=f"{subject} has no step that could be claimed.")]
    state = "waiting" if backlog else "empty"
    return Explanation(subject=subject, state=state, causes=tuple(causes))


def explain_worker(
    known: Known, specs: Mapping[int, QueueSpec], backlog: Sequence[Backlog], former: Sequence[Service], now: int
) -> Explanation:
    """What a worker does, and which waiting steps it does not take."""
    row, subject = known.row, f"worker {known.row.id}"
    heard = f"last heard {span(now - row.heard_at)} ago"
    start = start_command(None, [one for one in (known.service, *former) if one is not None], row.tenant)
    if row.state == "shutdown":
        said = f"{subject} was shut down, {heard}."
        causes = [Cause(code=Why.FINISHED, subject=subject, sentence=said, since=row.heard_at, command=start)]
    elif known.is_silent(now):
        said = f"{subject} is silent, {heard}; its steps go to other workers when their leases end."
        causes = [Cause(code=Why.DEAD_WORKER, subject=subject, sentence=said, since=row.heard_at, command=start)]
    elif row.state == "draining":
        said = f"{subject} drains: it finishes what it holds and claims nothing."
        causes = [Cause(code=Why.DRAINING, subject=subject, sentence=said, command=start)]
    else:
        causes = [_serving(known, subject)]
        causes += [cause for one in backlog if (cause := _passed_over(known, specs[one.queue], one, now)) is not None]
    return Explanation(subject=subject, state=row.state, causes=tuple(causes))


def _serving(known: Known, subject: str) -> Cause:
    offer = known.service
    if offer is None:
        return Cause(code=Why.OTHER, subject=subject, sentence=f"{subject} does not say what it serves.")
    full = offer.free <= 0
    count = len(offer.handlers) + len(offer.agents)
    whole = _groups(offer) if offer.own_runs is None else f"{offer.own_runs}, in {_groups(offer)},"
    said = f"{subject} serves {whole} with {count} handlers, and holds {_load(offer)}."
    return Cause(code=Why.FULL if full else Why.SERVES, subject=subject, sentence=said)


def _passed_over(known: Known, spec: QueueSpec, one: Backlog, now: int) -> Cause | None:
    lacks = known.lacks(spec, one.queue)
    if not lacks:
        return None
    code = {
        Lack.HANDLER: Why.NO_HANDLER,
        Lack.VERSION: Why.NO_VERSION,
        Lack.KIND: Why.FORBIDDEN,
        Lack.CAPABILITY: Why.NO_CAPABILITY,
        Lack.SECRET: Why.NO_SECRET,
        Lack.QUEUE: Why.NO_QUEUE,
        Lack.FIT: Why.MISFIT,
        Lack.RUN: Why.ONLY_RUN,
    }[lacks[0]]
    steps = "1 step" if one.depth == 1 else f"{one.depth:,} steps"
    oldest = f"the oldest ready for {span(now - one.oldest_at)}"
    wrong = known.misfit(spec, None)
    lacking = f"it lacks the {lacks[0]}"
    if lacks[0] is Lack.FIT and wrong is not None:
        lacking = f"it hands them back: {wrong.text}"
    if lacks[0] is Lack.RUN and known.service is not None:
        lacking = f"it serves {known.service.own_runs}"
    said = f"it does not take {steps} for {title(spec)}, {oldest}: {lacking}."
    offers = [known.service] if known.service is not None else []
    start = start_command(spec, offers, known.row.tenant)
    return Cause(code=code, subject=title(spec), sentence=said, since=one.oldest_at, command=start)


def _load(offer: Service | None) -> str:
    return "an unknown number of steps" if offer is None else f"{offer.held} of {offer.places} places"


def _groups(offer: Service | None) -> str:
    if offer is None or offer.groups is None:
        return "all queues"
    return listed([f"queue {group}" if group else "the default queue" for group in offer.groups])
