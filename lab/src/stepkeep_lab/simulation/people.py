"""People and other programs: they start runs, approve, reject, complete, send and cancel, often at a bad moment.

During the faults they act at random, twice, out of order and on the wrong thing. Afterwards they answer every wait
without a deadline, so that every run can end. All requests go through the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from stepkeep.definition.policy import PolicyDocument
from stepkeep.kernel.composition.continuation import ContinuationKind
from stepkeep.kernel.decide.decision import Accepted
from stepkeep.kernel.decide.stuck import CHOICES
from stepkeep.kernel.definition import SECOND, PolicyEffect
from stepkeep.kernel.errors import Contended, NotAllowed, Refused, StoreError
from stepkeep.kernel.machine.events import HoldChoice
from stepkeep.kernel.machine.rows import Run, Step, is_exhausted
from stepkeep.kernel.machine.states import RUN_TERMINAL, STEP_TERMINAL, STEP_WAITING, RunState, StepState
from stepkeep.kernel.people.authority import Caller, MembershipKind
from stepkeep.kernel.plan import Plan
from stepkeep.operations.continuation import pausing, quarantine
from stepkeep.operations.continuation.going_on import ContinuationOptions, continue_run, rerun
from stepkeep.operations.continuation.migrating import migrate
from stepkeep.operations.limits import pauses
from stepkeep.operations.messages import mailbox
from stepkeep.operations.people import interventions, people
from stepkeep.operations.pipeline.plans import plan_of
from stepkeep.operations.pipeline.start import Started, StartRequest, start_idle
from stepkeep.store.principals import MembershipRow, PrincipalKind, SubjectKind
from stepkeep_lab.simulation.definitions import EVENTS, REQUESTERS, ROLE, SERVICE, VOTERS, maybe
from stepkeep_lab.simulation.faults import Fault
from stepkeep_lab.simulation.gathering import payload_of
from stepkeep_lab.simulation.ledger import Ack
from stepkeep_lab.simulation.migrated import VERSIONS
from stepkeep_lab.simulation.processes import Server
from stepkeep_lab.simulation.stage import TENANT, Stage

T = TypeVar("T")
STARTED_WITHIN = 0.8
"""The part of the chaos within which all runs are started."""

OPERATOR = "operator"
LETTER = "letter"
SLEEP = "sleep"
"""The name under which a `sleep:` waits: no message of that name may end it."""

ONE_IN = 4
"""Of this many runs one is looked at, one run again, and one shares its business key with others."""


class People:
    """All of them. `plans` has one plan per run to start; `starting` counts those not yet answered for."""

    def __init__(self, stage: Stage, server: Server, plans: list[Plan]) -> None:
        self._stage, self._server, self._plans = stage, server, plans
        self.known: dict[int, Plan] = {plan.definition_id: plan for plan in plans}
        self._random = stage.random("people")
        self._losses = stage.random("lost tokens")
        self._alarms = stage.random("alarms")
        self._services = stage.random("services")
        self._staffing = stage.random("standing")
        self._hurries = stage.random("hurries")
        self._requests = stage.random("requests")
        self._operators = stage.random("other approvers")
        self._reassigns = bool(stage.scenario.bias.get("nobody"))
        self._ledger = stage.ledger
        self._fourth = len(plans) // ONE_IN
        self._goes_on = bool(stage.scenario.bias.get("again"))
        self._clicks = 0
        self._messages = 0
        self._reruns = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._stopped: set[str] = set()
        self.starting = 0
        self._register()

    @property
    def busy(self) -> bool:
        return any(not task.done() for task in self._tasks)

    def _register(self) -> None:
        """Everyone who decides gates has an account and a role, some of them for a part of the time."""
        rows, now = self._stage.database.tables.people, self._stage.database.clock()
        moment = now + round(self._stage.scenario.chaos * 500_000)
        for name in (*VOTERS, SERVICE):
            row = MembershipRow(
                tenant=TENANT,
                id=name,
                subject=name,
                subject_kind=SubjectKind.PERSON,
                kind=MembershipKind.ROLE,
                name=ROLE,
                granted_at=moment if name == "eve" else 0,
                granted_by="root",
            )
            detail = {"id": name, "to": "person", "role": ROLE}
            rows.begin(TENANT, row.granted_at, "granted", name, detail, memberships=(row,))
            if name == "dan":
                ended = replace(row, revoked_at=moment, revoked_by="root")
                rows.begin(TENANT, moment, "revoked", name, detail, memberships=(ended,))
        # These come last: later changes are not dated before them.
        for name in (*VOTERS, SERVICE):
            rows.register(TENANT, name, PrincipalKind.SERVICE if name == SERVICE else PrincipalKind.USER, now)

    # -- asking ------------------------------------------------------------------------------------------------------
    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks = [task for task in self._tasks if not task.done()]
        self._tasks.append(asyncio.get_running_loop().create_task(work))

    async def _ask(self, operation: Callable[[Server], Awaitable[T]], *, again: bool) -> T | None:
        """Ask until there is an answer (or, without `again`, perhaps never know). A refusal is an answer."""
        while True:
            calm = not self._stage.chaos
            try:
                return await self._server.call(operation)
            except Refused as refusal:
                self._ledger.refusals[type(refusal).__name__] += 1
                if isinstance(refusal, NotAllowed) and refusal.step is not None:
                    self._ledger.violations_told.add((refusal.person or "", refusal.rule, refusal.step))
                return None
            except StoreError as problem:
                self._ledger.met[f"a caller met {type(problem).__name__}"] += 1
                if isinstance(problem, Contended) and calm:
                    self._ledger.violation(f"I5: nobody else acts, and yet a request met somebody: {problem}")
                    return None
                if not again:
                    return None
            except Exception as problem:  # noqa: BLE001 - a defect, to be told
                self._ledger.violation(f"a request broke: {type(problem).__name__}: {problem}")
                return None
            await asyncio.sleep(0.2 + self._random.random() * 2)

    async def _decide(
        self, run_id: str, event: Callable[[Server], Awaitable[Accepted]], kind: str, **asked: object
    ) -> None:
        """Ask for a decision; a yes to something else than what was asked is no yes."""
        accepted = await self._ask(event, again=maybe(self._random, 0.7))
        if accepted is not None:
            record = accepted.record
            for word, said in asked.items():
                if record.get(word) != said:
                    self._ledger.violation(f"I11: {kind} of {run_id}: asked for {word} {said}, told yes to {record}")
            if accepted.repeated:
                self._ledger.met[f"{kind.split()[0]}: the same again"] += 1
            self._ledger.acks.append(Ack(kind, run_id, accepted))

    # -- starting ----------------------------------------------------------------------------------------------------
    async def start_all(self) -> None:
        starts = self.starting = len(self._plans)
        for place, plan in enumerate(self._plans):
            if not self._stage.scenario.alike:
                await asyncio.sleep(self._random.random() * STARTED_WITHIN * self._stage.scenario.chaos / starts)
            self._spawn(self._start(place, plan))

    async def _start(self, place: int, plan: Plan) -> None:
        random = self._stage.random(f"start:{place}")
        request = StartRequest(
            plan=plan,
            caller=Caller(TENANT, random.choice(REQUESTERS)),
            input=b'{"n":1}',
            scope="a key",
            idempotency_key=f"key-{place}" if maybe(random, 0.7) else None,
            business_key=random.choice((None, None, f"order-{random.randint(0, self._fourth)}")),
            start_now=maybe(random, 0.85),
            start_delay=self._delay(place),
        )
        starts = [self._start_once(request)]
        if request.idempotency_key and maybe(random, self._stage.scenario.duplicate):
            self._stage.log.note(Fault.START_DUPLICATED, request.idempotency_key)
            starts.append(self._start_once(request))
            if maybe(random, 0.5):
                starts.append(self._start_once(msgspec.structs.replace(request, input=b'{"n":2}')))
        if request.idempotency_key and maybe(self._stage.random(f"scope:{place}"), 0.2):
            # The same key of another caller is another key.
            starts.append(self._start_once(msgspec.structs.replace(request, scope="another key")))
        await asyncio.gather(*starts)
        self.starting -= 1

    def _delay(self, place: int) -> int | None:
        """How much later a run starts. Drawn apart, so that earlier draws stay as they were."""
        random = self._stage.random(f"delay:{place}")
        return random.choice((2, 5, 12)) * SECOND if maybe(random, 0.12) else None

    async def _start_once(self, request: StartRequest) -> None:
        asked_at = self._stage.loop.time()
        started = await self._ask(lambda server: server.starter.start(request), again=True)
        if started is not None:
            self._ledger.asked_at.setdefault(started.run_id, asked_at)
            self._started(started, request)

    def _started(self, started: Started, request: StartRequest) -> None:
        key = request.idempotency_key
        self._ledger.acks.append(Ack("start", started.run_id, (key and (request.scope, key), request.input)))
        if not started.created:
            self._ledger.met["start: the same again"] += 1
        elif request.start_delay is not None:
            self._ledger.delayed[started.run_id] = request.start_delay

    # -- chaos -------------------------------------------------------------------------------------------------------
    async def meddle(self) -> None:
        """Act at random until the chaos is over."""
        random = self._random
        while self._stage.chaos:
            await asyncio.sleep(random.choice((0.05, 0.5, 2.0)) * random.random())
            runs = list(self._stage.database.tables.runs.values())
            if not runs:
                continue
            for run in random.sample(runs, 1 + len(runs) // ONE_IN):
                self._meddle_with(run)

    def _meddle_with(self, run: Run) -> None:
        random, scenario = self._random, self._stage.scenario
        for step in self._waiting(run):
            self._serve_badly(run, step)
        if maybe(random, scenario.cancel * 0.2):
            self._cancel(run)
        if maybe(random, scenario.noise * 0.4):
            random.choice(NOISES)(self, run)

    def _waiting(self, run: Run) -> list[Step]:
        rows = self._stage.database.tables.steps[run.tenant, run.id].values()
        return [row for row in rows if row.state in STEP_WAITING]

    def _serve_badly(self, run: Run, step: Step) -> None:
        random, scenario = self._random, self._stage.scenario
        if is_exhausted(step):
            if maybe(random, 0.3):
                self._decide_hold(run, step, random.choice(list(HoldChoice)))
        elif step.state is StepState.AWAITING_APPROVAL:
            if maybe(random, scenario.approve * 0.4):
                self._judge(run, step, approve=True)
            if maybe(random, scenario.reject * 0.3):
                self._judge(run, step, approve=False)
            if maybe(self._requests, scenario.approve * 0.1):
                self._intervene(run, step)
            if self._reassigns and maybe(self._operators, 0.1):
                self._reassign(run, step)
        elif step.state is StepState.AWAITING_COMPLETION and maybe(random, scenario.complete * 0.4):
            self._complete(run, step)
        elif step.state is StepState.AWAITING_EVENT and maybe(random, scenario.send * 0.4):
            assert step.note is not None
            self._send(run, step.note.event or "")
        if step.state is StepState.AWAITING_COMPLETION and maybe(self._losses, 0.1):
            self._lose_token(run, step)

    def _name(self, run: Run, no: int) -> str:
        return self.known[run.definition_id].at(no).name

    def _judge(self, run: Run, step: Step, *, approve: bool) -> None:
        name, actor = self._name(run, step.no), self._random.choice(VOTERS)
        actor, key, on_behalf_of = self._standing(actor)
        if maybe(self._services, 0.15):
            actor, key, on_behalf_of = SERVICE, None, None
        self._cast(run, name, actor, key, on_behalf_of, approve=approve)

    def hurry(self, actor: str) -> None:
        """A person whose right is about to end decides what waits, just before it, with it or after it."""
        for run in list(self._stage.database.tables.runs.values()):
            for step in self._waiting(run):
                if step.state is StepState.AWAITING_APPROVAL and not is_exhausted(step) and maybe(self._hurries, 0.4):
                    self._spawn(self._cast_later(run, self._name(run, step.no), actor))

    async def _cast_later(self, run: Run, name: str, actor: str) -> None:
        await asyncio.sleep(self._hurries.random() * 2 * self._stage.scenario.latency)
        self._cast(run, name, actor, None, None, approve=True)

    def _cast(
        self, run: Run, name: str, actor: str, key: str | None, on_behalf_of: str | None, *, approve: bool
    ) -> None:
        self._spawn(
            self._decide(
                run.id,
                lambda server: people.decide_gate(
                    server.transactor,
                    run.id,
                    approve=approve,
                    caller=Caller(TENANT, actor, key=key),
                    on_behalf_of=on_behalf_of,
                    step=name,
                ),
                "gate",
                step=name,
                decision="approved" if approve else "rejected",
                by=actor,
            )
        )

    def _standing(self, actor: str) -> tuple[str, str | None, str | None]:
        """The person who decides, perhaps with a key (also one that has ended), or on behalf of another."""
        chance = self._staffing
        if not self._stage.scenario.staff or not self._stage.chaos:
            return actor, None, None
        if self._ledger.keys and maybe(chance, 0.3):
            key, owner = chance.choice(self._ledger.keys)
            return owner, key, None
        lent = list(self._stage.database.tables.people.delegations.values())
        if lent and maybe(chance, 0.3):
            row = chance.choice(lent)
            return row.delegate, None, row.delegator
        return actor, None, None

    def _intervene(self, run: Run, step: Step) -> None:
        """Changes are requested, the next level is asked for, or a note is kept, by a person who may or may not."""
        chance, name = self._requests, self._name(run, step.no)
        who = Caller(TENANT, chance.choice(VOTERS))
        kind = chance.choice(("changes", "changes", "levels", "reassigned", "notes"))
        said = f"request {chance.getrandbits(16)}"
        to = [chance.choice(VOTERS)] if kind == "reassigned" and maybe(chance, 0.7) else []

        def ask(server: Server) -> Awaitable[Accepted]:
            if kind == "changes":
                return interventions.request_changes(server.transactor, run.id, name, said, None, who)
            if kind == "levels":
                return interventions.escalate(server.transactor, run.id, name, said, None, who)
            if kind == "reassigned":
                return interventions.reassign(server.transactor, run.id, name, to, not to, said, who)
            return interventions.annotate(server.transactor, run.id, said, name, who)

        async def asked() -> None:
            accepted = await self._ask(ask, again=maybe(chance, 0.7))
            if accepted is not None:
                self._ledger.met[f"{kind} on request"] += 1

        self._spawn(asked())

    def _reassign(self, run: Run, step: Step) -> None:
        """An operator, who may have asked for the run, names other approvers or fails the gate, whoever may decide."""
        chance, name = self._operators, self._name(run, step.no)
        actor = chance.choice((OPERATOR, OPERATOR, *REQUESTERS))
        who = Caller(TENANT, actor)
        to = [] if maybe(chance, 0.15) else chance.sample(VOTERS, chance.choice((1, 1, 2)))
        self._spawn(
            self._decide(
                run.id,
                lambda server: interventions.reassign(server.transactor, run.id, name, to, not to, "nobody may", who),
                "reassignment",
                step=name,
                decision="reassigned" if to else "rejected",
                by=actor,
            )
        )

    def _decide_hold(self, run: Run, step: Step, choice: HoldChoice) -> None:
        name, actor = self._name(run, step.no), self._random.choice(REQUESTERS)
        self._spawn(
            self._decide(
                run.id,
                lambda server: people.decide_hold(
                    server.transactor, run.id, name, choice, caller=Caller(TENANT, actor), reason="chaos"
                ),
                "hold",
                step=name,
                by=actor,
            )
        )

    def _double_click(self, run: Run) -> None:
        """The same person says the same twice, without naming a gate."""
        self._clicks += 1
        self._stage.log.note(Fault.DOUBLE_CLICK, run.id)
        actor, comment, approve = self._random.choice(REQUESTERS), f"click {self._clicks}", maybe(self._random, 0.8)

        async def twice() -> None:
            for _ in range(2):
                await self._decide(
                    run.id,
                    lambda server: people.decide_gate(
                        server.transactor, run.id, approve=approve, caller=Caller(TENANT, actor), comment=comment
                    ),
                    "click",
                    decision="approved" if approve else "rejected",
                    by=actor,
                )

        self._spawn(twice())

    def _complete(self, run: Run, step: Step, outcome: str | None = None) -> None:
        random = self._random
        tokens = self._ledger.token_of.get((run.id, step.no), [])
        token = random.choice(tokens) if tokens and maybe(random, 0.9) else "no such token"
        said = outcome or random.choice(("Succeeded", "Succeeded", "Failed", "Cancelled"))
        self._finish(run, step, token, said)

    def _finish(self, run: Run, step: Step, token: str, outcome: str) -> None:
        name, actor = self._name(run, step.no), self._random.choice(REQUESTERS)

        async def complete(server: Server) -> Accepted:
            try:
                return await people.complete(
                    server.transactor,
                    run.id,
                    name,
                    token=token,
                    outcome=outcome,
                    caller=Caller(TENANT, actor),
                    output=b'{"ok":true}',
                )
            except NotAllowed as refusal:
                if not self._stage.chaos and refusal.rule in self._stopping_rules(run, step):
                    self._stopped.add(run.id)
                raise

        self._spawn(self._decide(run.id, complete, "completion", step=name, outcome=outcome))
        self._ledger.presented.append((run.id, step.no, token))

    def _stopping_rules(self, run: Run, step: Step) -> set[str]:
        """The rules of the definition, and of the pinned or newest revision, that may refuse a completion.

        Not the one that people have approved for this step.
        """
        tables, own = self._stage.database.tables, self.known[run.definition_id].definition.policy
        pinned = tables.details[TENANT, run.id].policy_revision
        live = [one for one in tables.policies.get(TENANT, ()) if pinned in (None, one.revision)][:1]
        found = {f"{rule.name}@definition": rule for rule in own or ()}
        for one in live:
            rules = msgspec.json.decode(one.document, type=PolicyDocument).rules
            found |= {f"{rule.name}@{one.revision}": rule for rule in rules}
        found.pop(step.note.permit or "" if step.note is not None else "", None)
        return {rule.name for rule in found.values() if rule.then is not PolicyEffect.ALLOW}

    def _lose_token(self, run: Run, step: Step) -> None:
        """A token is lost, and a new one is asked for."""
        name, token = self._name(run, step.no), f"reissued-{self._losses.getrandbits(64):x}"
        self._ledger.issue(run.id, step.no, token)
        self._ledger.reissued[run.id, step.no].append(token)
        self._spawn(
            self._decide(
                run.id,
                lambda server: people.reissue_token(
                    server.transactor, run.id, name, token=token, reason="lost", caller=Caller(TENANT, "ann")
                ),
                "token",
                step=name,
                by="ann",
            )
        )

    def _send(self, run: Run, name: str) -> None:
        """A message, perhaps twice, perhaps overtaking the one sent before it."""
        random = self._random
        self._messages += 1
        message = f"m{self._messages}"
        copies = 1
        if maybe(random, self._stage.scenario.duplicate):
            self._stage.log.note(Fault.MESSAGE_DUPLICATED, message)
            copies = random.randint(2, 3)
        for _ in range(copies):
            delay = random.choice((0.0, 0.0, random.random() * 3))
            if delay:
                self._stage.log.note(Fault.MESSAGE_REORDERED, message)
            self._spawn(self._deliver(run, name, message, delay))

    async def _deliver(self, run: Run, name: str, message: str, delay: float) -> None:
        await asyncio.sleep(delay)
        self._ledger.sent[run.id, message] = name
        payload = payload_of(message)
        await self._decide(
            run.id,
            lambda server: people.send(
                server.transactor, run.id, name, payload, caller=Caller(TENANT, "outside"), message_id=message
            ),
            f"message {message}",
        )

    # -- messages by key ---------------------------------------------------------------------------------------------
    async def write_by_key(self) -> None:
        """Send messages to business keys, whether a run has them or not, until the chaos is over: some start a run,
        some are sent again, some are kept for a moment only."""
        random, drops, number = self._stage.random("by key"), self._stage.random("drops"), 0
        while self._stage.chaos:
            await asyncio.sleep(random.choice((0.05, 0.5, 2.0)) * random.random())
            if not maybe(random, 0.5):
                continue
            number += 1
            key, name, message = f"order-{random.randint(0, self._fourth)}", random.choice(EVENTS), f"k{number}"
            starts, ttl = maybe(random, 0.15), random.choice((None, None, 2 * SECOND))
            plan = random.choice(self._plans) if starts else None
            copies = random.randint(2, 3) if maybe(random, max(0.2, self._stage.scenario.duplicate)) else 1
            for copy in range(copies):
                delay = 0.0 if not copy else random.random() * random.choice((0.0, 3.0, 10.0))
                self._spawn(self._write_one(key, name, message, plan, None if starts else ttl, delay))
            if maybe(drops, 0.05):
                self._spawn(self._drop(key, message=None if maybe(drops, 0.5) else message, delay=drops.random()))

    async def _drop(self, key: str, *, message: str | None, delay: float) -> None:
        """An operator drops what is kept for a key, or one message of it."""
        await asyncio.sleep(delay)
        self._ledger.drops.add(key)
        done = await self._ask(
            lambda server: mailbox.drop(server.transactor.store, key, message, tenant=TENANT), again=False
        )
        if done is not None:
            self._ledger.dropped |= {(key, one) for one in done["dropped"]}

    async def _write_one(
        self, key: str, name: str, message: str, plan: Plan | None, ttl: int | None, delay: float
    ) -> None:
        await asyncio.sleep(delay)
        start = None if plan is None else StartRequest(plan=plan, caller=Caller(TENANT, "ann"), input=b'{"n":1}')
        payload = payload_of(message)
        sent = await self._ask(
            lambda server: server.key_sender.send(
                key, name, payload, caller=Caller(TENANT, "outside"), message_id=message, ttl=ttl, start=start
            ),
            again=True,
        )
        if sent is not None:
            self._ledger.by_key.append((key, message, sent))

    async def write_letters(self, count: int) -> None:
        """Send the first run one message after the other, of a kind that nothing waits for: each is an entry."""
        runs = self._stage.database.tables.runs
        wanted = self._plans[0].definition_id
        while not any(run.definition_id == wanted for run in runs.values()):  # noqa: ASYNC110 - the time is virtual
            await asyncio.sleep(0.1)
        first = next(run for run in runs.values() if run.definition_id == wanted)
        for letter in range(count):
            await self._deliver(first, LETTER, f"letter-{letter}", 0.0)

    def _cancel(self, run: Run) -> None:
        self._stage.log.note(Fault.CANCEL, run.id)
        compensate, actor = maybe(self._random, 0.5), self._random.choice(REQUESTERS)
        again = self._random.random() * 4 if maybe(self._random, 0.5) else None

        async def cancel() -> None:
            def asked(server: Server) -> Awaitable[Accepted]:
                return people.cancel(server.transactor, run.id, caller=Caller(TENANT, actor), compensate=compensate)

            await self._decide(run.id, asked, "cancel")
            if again is not None:
                await asyncio.sleep(again)
                await self._decide(run.id, asked, "cancel")

        self._spawn(cancel())

    # -- the operator ------------------------------------------------------------------------------------------------
    async def set_aside(self) -> None:
        """Quarantine runs at random and release them after a while, until the chaos is over."""
        random, scenario = self._stage.random("operator"), self._stage.scenario
        while scenario.quarantine and self._stage.chaos:
            await asyncio.sleep(random.choice((0.2, 1.0, 3.0)) * random.random())
            runs = list(self._stage.database.tables.runs.values())
            if runs and maybe(random, scenario.quarantine):
                self._spawn(self._quarantine(random.choice(runs), random.choice((0.1, 2.0, 20.0)) * random.random()))

    async def _quarantine(self, run: Run, seconds: float) -> None:
        self._stage.log.note(Fault.QUARANTINE, run.id)
        noted = await self._ask(
            lambda server: quarantine.quarantine(
                server.transactor, run.id, caller=Caller(TENANT, OPERATOR), reason="a look at it"
            ),
            again=False,
        )
        if noted is not None:
            self._ledger.acks.append(Ack("quarantine", run.id, noted))
            await asyncio.sleep(seconds)
            await self._release(run.id)

    async def _release(self, run_id: str) -> None:
        await self._ask(
            lambda server: quarantine.release(
                server.transactor, run_id, caller=Caller(TENANT, OPERATOR), reason="seen"
            ),
            again=True,
        )

    async def pause_runs(self) -> None:
        """Pause runs at random and resume them after a while, until the chaos is over."""
        random, scenario = self._stage.random("pauser"), self._stage.scenario
        while scenario.pauses and self._stage.chaos:
            await asyncio.sleep(random.choice((0.2, 1.0, 3.0)) * random.random())
            runs = [run for run in self._stage.database.tables.runs.values() if run.state not in RUN_TERMINAL]
            if runs and maybe(random, scenario.pauses):
                self._spawn(self._pause(random.choice(runs), random.choice((0.1, 2.0, 20.0)) * random.random()))

    async def _pause(self, run: Run, seconds: float) -> None:
        self._stage.log.note(Fault.RUN_PAUSED, run.id)
        await self._decide(
            run.id,
            lambda server: pausing.pause_run(server.transactor, run.id, caller=Caller(TENANT, OPERATOR)),
            "pause",
        )
        await asyncio.sleep(seconds)
        await self._resume(run.id)

    async def _resume(self, run_id: str) -> None:
        await self._decide(
            run_id,
            lambda server: pausing.resume_run(server.transactor, run_id, caller=Caller(TENANT, OPERATOR)),
            "resume",
        )

    async def pause_workflows(self) -> None:
        """Pause workflows at random, with their live runs, and resume both after a while, until the chaos is over."""
        random, scenario = self._stage.random("workflow pauser"), self._stage.scenario
        paused: set[str] = set()
        while scenario.workflow_pauses and self._stage.chaos:
            await asyncio.sleep(random.choice((0.2, 1.0, 3.0)) * random.random())
            workflow = random.choice(self._plans).definition.name
            if maybe(random, scenario.workflow_pauses) and workflow not in paused:
                paused.add(workflow)
                self._spawn(
                    self._pause_workflow(workflow, 1 + random.choice((1.0, 4.0, 12.0)) * random.random(), paused)
                )

    async def _pause_workflow(self, workflow: str, seconds: float, paused: set[str]) -> None:
        self._stage.log.note(Fault.WORKFLOW_PAUSED, workflow)
        caller = Caller(TENANT, OPERATOR)
        await self._ask(
            lambda server: pauses.pause_workflow(server.transactor.store, workflow, "a look", caller=caller),
            again=True,
        )
        began = self._stage.loop.time()
        for run in self._live(workflow):
            self._spawn(self._pause(run, seconds))
        await asyncio.sleep(seconds)
        self._ledger.workflow_pauses.append((workflow, began, self._stage.database.clock()))
        await self._ask(
            lambda server: pauses.resume_workflow(server.transactor.store, workflow, caller=caller), again=True
        )
        paused.discard(workflow)
        for run in self._live(workflow):
            if run.state is RunState.PAUSED:
                self._spawn(self._resume(run.id))

    def _live(self, workflow: str) -> list[Run]:
        tables = self._stage.database.tables
        live = (run for run in tables.runs.values() if run.state not in RUN_TERMINAL)
        return [run for run in live if tables.details[run.tenant, run.id].workflow == workflow]

    async def decide_stuck(self) -> None:
        """Retry, skip, fail or complete single steps at random, stuck or not, until the chaos is over. A scenario with
        `stuck` has those alone that somebody may decide about."""
        random, scenario = self._stage.random("decider"), self._stage.scenario
        tables = self._stage.database.tables
        while scenario.decisions and self._stage.chaos:
            await asyncio.sleep(random.choice((0.2, 1.0, 3.0)) * random.random())
            runs = [run for run in tables.runs.values() if run.state not in RUN_TERMINAL]
            if not runs or not maybe(random, scenario.decisions):
                continue
            run = random.choice(runs)
            rows = [row for row in tables.steps[run.tenant, run.id].values() if row.state not in STEP_TERMINAL]
            if scenario.stuck:
                rows = [row for row in rows if row.state in CHOICES or is_exhausted(row)]
            if rows:
                step = random.choice(rows)
                self._stage.log.note(Fault.STEP_DECIDED, run.id)
                self._decide_step(run, step, random.choice(list(HoldChoice)), random.choice(REQUESTERS))

    def _decide_step(self, run: Run, step: Step, choice: HoldChoice, actor: str) -> None:
        name, output = self._name(run, step.no), b'{"by":"hand"}' if choice is HoldChoice.COMPLETE else None
        self._spawn(
            self._decide(
                run.id,
                lambda server: people.decide_hold(
                    server.transactor, run.id, name, choice, caller=Caller(TENANT, actor), reason="stuck", output=output
                ),
                "hold",
                step=name,
                by=actor,
            )
        )

    async def migrate_runs(self) -> None:
        """Migrate runs in any state to another version, until the chaos is over."""
        random, scenario = self._stage.random("migrator"), self._stage.scenario
        while scenario.migrations and self._stage.chaos:
            await asyncio.sleep(random.choice((0.2, 1.0, 3.0)) * random.random())
            runs = [run for run in self._stage.database.tables.runs.values() if run.state not in RUN_TERMINAL]
            if runs and maybe(random, scenario.migrations):
                run, to = random.choice(runs), random.choice((1, *VERSIONS))
                self._stage.log.note(Fault.RUN_MIGRATED, run.id)
                self._spawn(self._migrate(run.id, to, random.choice(REQUESTERS)))

    async def _migrate(self, run_id: str, to: int, actor: str) -> None:
        caller = Caller(TENANT, actor)
        done = await self._ask(
            lambda server: migrate(server.transactor, server.starter, run_id, to, caller=caller),
            again=True,
        )
        if done is not None:
            self._ledger.met["migration: accepted"] += 1
            self._ledger.acks.append(Ack("migration", done.new_run_id, done))

    # -- noise -------------------------------------------------------------------------------------------------------
    def _any_step(self, run: Run) -> Step:
        return self._random.choice(list(self._stage.database.tables.steps[run.tenant, run.id].values()))

    def _judge_anything(self, run: Run) -> None:
        self._judge(run, self._any_step(run), approve=maybe(self._random, 0.5))

    def _complete_anything(self, run: Run) -> None:
        self._complete(run, self._any_step(run))

    def _send_anything(self, run: Run) -> None:
        name = self._random.choice((*EVENTS, ""))
        self._send(run, SLEEP if maybe(self._alarms, 0.2) else name)

    def _start_again(self, run: Run) -> None:
        self._begin(run)

    def _ask_for_nothing(self, run: Run) -> None:
        ghost = msgspec.structs.replace(run, id="00000000-0000-7000-8000-000000000000")
        self._send(ghost, EVENTS[0])

    def _rerun(self, run: Run) -> None:
        if self._reruns > (4 * len(self._plans) if self._goes_on else self._fourth):
            return
        self._reruns += 1
        key, actor, turn = f"rerun-{self._reruns}", REQUESTERS[self._reruns % len(REQUESTERS)], self._reruns

        async def again() -> None:
            started = await self._ask(
                lambda server: _again(server, run, turn, key, actor, at_calls=self._goes_on), again=True
            )
            if started is not None:
                self._ledger.acks.append(Ack("start", started.run_id, (key, b'{"n":1}')))

        self._spawn(again())

    # -- fairness ----------------------------------------------------------------------------------------------------
    def _begin(self, run: Run) -> None:
        self._ledger.begun.add(run.id)
        self._ledger.begin_asked_at.setdefault(run.id, self._stage.loop.time())

        async def begin() -> None:
            record = await self._ask(
                lambda server: start_idle(server.transactor, run.id, caller=Caller(TENANT, "ann")), again=True
            )
            if record is not None:
                self._ledger.acks.append(Ack("begin", run.id, record))

        self._spawn(begin())

    def serve_fairly(self) -> None:
        """Give everybody who waits without a deadline what they wait for."""
        if self.busy:
            return
        for one in self._stage.database.tables.quarantine:
            if one.released_at is None:
                self._spawn(self._release(one.run_id))
        for run in list(self._stage.database.tables.runs.values()):
            if run.state in RUN_TERMINAL:
                continue
            if run.state is RunState.IDLE and run.due_at is None:
                if run.id in self._ledger.delayed:
                    self._ledger.violation(f"run {run.id} starts later, and no timer starts it")
                self._begin(run)
            if run.state is RunState.PAUSED:
                self._spawn(self._resume(run.id))
            if run.id in self._stopped:
                # No person can approve what a policy holds before a completion: the run goes on under another policy,
                # or is cancelled.
                self._stopped.remove(run.id)
                self._cancel(run)
                continue
            for step in self._waiting(run):
                if step.due_at is None or _only_reminds(step):
                    self._serve_well(run, step)

    def _serve_well(self, run: Run, step: Step) -> None:
        note = step.note
        if is_exhausted(step):
            self._decide_hold(run, step, self._random.choice(list(HoldChoice)))
        elif step.state is StepState.AWAITING_APPROVAL:
            self._judge(run, step, approve=maybe(self._random, 0.8))
            if self._reassigns:
                self._reassign(run, step)
        elif step.state is StepState.AWAITING_EVENT and note is not None:
            self._send(run, note.event or "")
        elif step.state is StepState.AWAITING_COMPLETION and note is not None:
            token = self._ledger.tokens.get(note.token or "")
            if token is None:
                self._ledger.violation(f"step {step.no} of {run.id} waits for a token that nobody was given")
                return
            self._finish(run, step, token, "Succeeded")


async def _again(server: Server, run: Run, turn: int, key: str, actor: str, *, at_calls: bool) -> Started:
    """Run a run again as a whole, or go on with it: in turn, so that every way is taken. With `at_calls`, some go on
    from a call of a flow."""
    by: dict[str, Any] = {"caller": Caller(TENANT, actor), "idempotency_key": key}
    if turn % 3 == 0:
        return await rerun(server.transactor, server.starter, run.id, **by)
    wanted = ContinuationOptions(how=ContinuationKind.RETRY)
    if turn % 3 == 1:
        plan = await plan_of(server.transactor, TENANT, run.id)
        planned = plan.steps[turn % plan.size]
        step = f"{planned.name}[{turn % 5}]" if at_calls and planned.kind.is_flow else planned.name
        wanted = ContinuationOptions(how=(ContinuationKind.FORK, ContinuationKind.RERUN)[turn % 2], start=step)
    return await continue_run(server.transactor, server.starter, run.id, wanted, **by)


def _only_reminds(step: Step) -> bool:
    """Whether its next timer is a reminder, and it has no deadline."""
    opening = None if step.note is None else step.note.opening
    return opening is not None and opening.deadline is None


NOISES: tuple[Callable[[People, Run], None], ...] = (
    People._judge_anything,
    People._complete_anything,
    People._send_anything,
    People._double_click,
    People._double_click,
    People._start_again,
    People._ask_for_nothing,
    People._rerun,
)
