"""The final check of a seed: the database against the ledger, and the exported logs against the judge.

It runs after everything has ended. Everything acknowledged must be there, every accepted outcome must be what a handler
returned, and the logs of all runs and workers must pass the judge.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec

from stepkeep.conformance.verify import verify_lines
from stepkeep.conformance.words.replay import replay_lines
from stepkeep.dialects import registry
from stepkeep.kernel.definition import Completion
from stepkeep.kernel.machine.journal import open_entry
from stepkeep.kernel.machine.rows import Message, Run, Step
from stepkeep.kernel.machine.states import RUN_TERMINAL, AttemptState, Phase, RunState, StepState, WorkerState
from stepkeep.kernel.people.gates import CHANGES_REQUESTED, ESCALATED, REASSIGNED, REMINDED
from stepkeep.kernel.plan import Plan
from stepkeep.operations.logs.lines import encode_line
from stepkeep.operations.logs.log import canonical_machines, export_run, export_worker
from stepkeep.operations.people.people import token_hash
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.store.rows import MailboxMessage
from stepkeep_lab.simulation import queries
from stepkeep_lab.simulation.added import wrong_added
from stepkeep_lab.simulation.adopted import is_adopted, wrong_adoptions
from stepkeep_lab.simulation.definitions import NEVER_HOLDS
from stepkeep_lab.simulation.families import wrong_families
from stepkeep_lab.simulation.flows import wrong_flows
from stepkeep_lab.simulation.gathering import wrongly_taken
from stepkeep_lab.simulation.ledger import Ack, Ledger
from stepkeep_lab.simulation.limits import wrong_slots
from stepkeep_lab.simulation.migrated import wrong_migrations
from stepkeep_lab.simulation.paused import wrong_pauses
from stepkeep_lab.simulation.shared_resources import wrong_executors, wrong_places, wrong_resources
from stepkeep_lab.simulation.stage import TENANT, Stage
from stepkeep_lab.simulation.standing import Standing
from stepkeep_lab.simulation.store import ModelStore
from stepkeep_lab.simulation.successors import is_successor, wrong_successors
from stepkeep_lab.simulation.tables import Tables

decode = msgspec.json.decode
MACHINES = canonical_machines()
JUDGED = {name: registry.judged(name) for name in registry.names()}
GATE_EVENTS = {
    "escalated": ESCALATED,
    "reassigned": REASSIGNED,
    "reminded": REMINDED,
    "changes_requested": CHANGES_REQUESTED,
}
"""What the outbox has for a hop of a gate."""

ENDS = {
    "Completed": {AttemptState.SUCCEEDED},
    "Waiting": {AttemptState.WAITED, AttemptState.FAILED},
    "Suspended": {AttemptState.WAITED, AttemptState.FAILED},
    "AskedCalls": {AttemptState.WAITED, AttemptState.FAILED},
    "Added": {AttemptState.SUCCEEDED, AttemptState.FAILED},
    "Failed": {AttemptState.FAILED},
    "TimedOut": {AttemptState.TIMED_OUT},
    "Released": {AttemptState.RELEASED, AttemptState.SUCCEEDED},
    "Stopped": {AttemptState.CANCELLED, AttemptState.FAILED},
    "RulesPassed": {AttemptState.SUCCEEDED},
    "RulesFailed": {AttemptState.SUCCEEDED, AttemptState.FAILED},
}
"""How an attempt may have ended after this was accepted about it; rules leave it as its handler ended it."""


class Verdict:
    """Asks its questions one after the other; what it finds goes to the ledger."""

    def __init__(self, stage: Stage, plans: dict[int, Plan]) -> None:
        self._stage, self._plans = stage, plans
        self._tables: Tables = stage.database.tables
        self._ledger: Ledger = stage.ledger

    def _must(self, holds: bool, said: str) -> None:
        if not holds:
            self._ledger.violation(said)

    async def give(self) -> None:
        self._everything_ended()
        self._answers_are_true()
        self._delays_are_kept()
        self._keys_are_kept()
        self._messages_by_key_arrived()
        self._waits_took_what_they_ask_for()
        self._outcomes_are_what_handlers_said()
        self._effects_have_their_key()
        self._exactly_once()
        self._outbox_is_what_was_emitted()
        self._inputs_were_right()
        self._one_click_one_gate()
        self._reruns_keep_their_requesters()
        for said in wrong_migrations(self._tables, self._plans):
            self._ledger.violation(said)
        for said in wrong_adoptions(self._tables, self._plans):
            self._ledger.violation(said)
        for said in wrong_families(self._tables, self._plans):
            self._ledger.violation(said)
        for said in wrong_flows(self._tables, self._plans, changes=self._stage.scenario.rollouts > 0):
            self._ledger.violation(said)
        for said in wrong_successors(self._tables, self._plans, self._ledger):
            self._ledger.violation(said)
        for said in self._stage.checkpoints.wrong(self._tables):
            self._ledger.violation(said)
        for said in wrong_added(self._tables, self._plans):
            self._ledger.violation(said)
        for said in wrong_pauses(self._tables, self._ledger):
            self._ledger.violation(said)
        for said in wrong_slots(self._tables):
            self._ledger.violation(said)
        for said in (*wrong_resources(self._tables, self._plans), *wrong_places(self._tables)):
            self._ledger.violation(said)
        for said in wrong_executors(self._tables, self._plans):
            self._ledger.violation(said)
        self._tokens_open_one_door()
        self._workers_said_goodbye()
        self._nobody_waited_in_a_circle()
        transactor = Transactor(ModelStore(self._stage.database), monotonic=self._stage.loop.time)
        await Standing(self._stage, self._plans).check(transactor)
        await self._judge(transactor)

    # -- I5, promise 6 -----------------------------------------------------------------------------------------------
    def _everything_ended(self) -> None:
        for run in self._tables.runs.values():
            self._must(run.state in RUN_TERMINAL, f"I5: run {run.id} never ends; it is {run.state}")
        for key in queries.stuck(self._tables):
            self._ledger.violation(f"promise 6: run {key[1]} has no cause to move")
        for key, run_id in self._tables.business.items():
            run = self._tables.runs[TENANT, run_id]
            self._must(run.state not in RUN_TERMINAL, f"I14: {key} is still taken by {run_id}, which has ended")

    def _delays_are_kept(self) -> None:
        """A run that starts later, and that was not started by request, waits at least so long."""
        for run_id, delay in self._ledger.delayed.items():
            run = self._tables.runs.get((TENANT, run_id))
            if run is None or run.started_at is None or run_id in self._ledger.begun:
                continue
            waited = run.started_at - self._tables.details[TENANT, run_id].created_at
            self._must(waited >= delay, f"run {run_id} was to start after {delay}, and started after {waited}")

    # -- waits -------------------------------------------------------------------------------------------------------
    def _waits_took_what_they_ask_for(self) -> None:
        """Each wait took the messages that it accepts, and as many as it asks for."""
        for (tenant, run_id), messages in self._tables.messages.items():
            plan = self._plans[self._tables.runs[tenant, run_id].definition_id]
            taken: dict[int, list[Message]] = defaultdict(list)
            for message in sorted(messages.values(), key=lambda one: one.number):
                if message.consumed_by is not None:
                    taken[message.consumed_by].append(message)
            for row in self._tables.steps[tenant, run_id].values():
                if _record(row).get("decision") == "completed":
                    continue  # a person completed it
                for said in wrongly_taken(plan, row, taken[row.no]):
                    self._ledger.violation(f"promise 5: run {run_id}: {said}")

    # -- messages by key ---------------------------------------------------------------------------------------------
    def _messages_by_key_arrived(self) -> None:
        """Each acknowledged message is in one run's inbox, or kept, or expired; none is in two, none came too late."""
        runs: dict[tuple[str, str], list[str]] = defaultdict(list)
        for (tenant, run_id), messages in self._tables.messages.items():
            key = self._tables.details[tenant, run_id].business_key
            for message in messages:
                if key is not None and message.startswith("k"):
                    runs[key, message].append(run_id)
        self._kept_in_order()
        for (key, message), found in runs.items():
            self._must(len(found) == 1, f"promise 5: message {message} for {key} reached {len(found)} runs")
        for key, message, sent in self._ledger.by_key:
            found, row = runs.get((key, message), []), self._tables.mailbox.get((TENANT, key, message))
            title = f"promise 5: message {message} for {key} was acknowledged"
            if sent.run_id is not None:
                self._must(found == [sent.run_id], f"{title} for run {sent.run_id}, and it is in {found}")
            if row is None:
                self._ledger.violation(f"{title}, and it is not there")
            elif row.payload is None and row.run_id is None:
                self._must(key in self._ledger.drops and not found, f"{title}, was dropped, and is in {found}")
            elif row.payload is None:
                self._must((key, message) not in self._ledger.dropped, f"{title}, was dropped, and is in {found}")
                self._must(found == [row.run_id], f"{title}, its row names run {row.run_id}, and it is in {found}")
                self._came_in_time(row)
            else:
                self._must((key, message) not in self._ledger.dropped, f"{title}, was dropped, and is kept")
                self._must(not found, f"{title}, is kept, and is in {found}")
                self._was_offered(row)
                self._had_no_run(row)

    def _was_offered(self, row: MailboxMessage) -> None:
        """A kept message was offered to every run that was created after it, unless that ended at once."""
        for details in self._tables.details.values():
            if details.business_key != row.key or not row.arrived_at < details.created_at < row.expires_at:
                continue
            ended_at = self._tables.runs[details.tenant, details.run_id].ended_at
            said = f"promise 5: message {row.id} is kept for {row.key}, and run {details.run_id} did not get it"
            self._must(ended_at == details.created_at, said)

    def _kept_in_order(self) -> None:
        """A run gets the messages that were kept for it in the order of their arrival."""
        for (tenant, run_id), messages in self._tables.messages.items():
            details = self._tables.details[tenant, run_id]
            key = details.business_key or ""
            rows = [(self._tables.mailbox.get((tenant, key, one.id)), one) for one in messages.values()]
            kept = [(row.arrived_at, message) for row, message in rows if row is not None]
            kept = [(at, message) for at, message in kept if at < details.created_at]
            times = [at for at, message in sorted(kept, key=lambda one: one[1].number)]
            self._must(times == sorted(times), f"promise 5: run {run_id} got kept messages in another order")

    def _had_no_run(self, row: MailboxMessage) -> None:
        """A message is kept only if no run had the key from when it came until it was saved: a run that ends meanwhile
        ends first. A coarse clock may be behind by one tick."""
        tick = round(self._stage.scenario.tick * 1_000_000)
        saved_at = self._ledger.saved_at[row.key, row.id]
        for details in self._tables.details.values():
            ended_at = self._tables.runs[details.tenant, details.run_id].ended_at
            lived = ended_at is not None and details.created_at < row.arrived_at and saved_at < ended_at - tick
            said = f"promise 5: message {row.id} is kept for {row.key}, although run {details.run_id} had the key"
            self._must(details.business_key != row.key or not lived, said)

    def _came_in_time(self, row: MailboxMessage) -> None:
        """No run gets a kept message whose time to live was over when the run was created."""
        details = self._tables.details.get((row.tenant, row.run_id or ""))
        was_kept = details is not None and row.arrived_at < details.created_at
        late = details is not None and was_kept and row.expires_at <= details.created_at
        self._must(not late, f"promise 5: message {row.id} for {row.key} reached {row.run_id} after its time to live")

    # -- acknowledged means durable ----------------------------------------------------------------------------------
    def _answers_are_true(self) -> None:
        for ack in self._ledger.acks:
            run = self._tables.runs.get((TENANT, ack.run_id))
            if run is None:
                self._ledger.violation(
                    f"promise 2: {ack.kind} of run {ack.run_id} was acknowledged, and it is not there"
                )
                continue
            self._answer(ack, run)

    def _answer(self, ack: Ack, run: Run) -> None:
        title = f"promise 2: {ack.kind} of run {run.id} was acknowledged"
        if ack.kind == "begin":
            self._must(run.state is not RunState.IDLE, f"{title}, and it never began")
        elif ack.kind == "cancel":
            if ack.about.record["state"] == RunState.CANCELLED:
                self._must(run.state is RunState.CANCELLED, f"{title}, and it is {run.state}")
        elif ack.kind in ("pause", "resume"):
            event = {"pause": "pause_requested", "resume": "unpause_requested"}[ack.kind]
            self._must(ack.about.repeated or self._has_cause(run, event), f"{title}, and the journal lacks it")
        elif ack.kind.startswith("message"):
            message = ack.kind.split()[1]
            self._must(message in self._tables.messages[TENANT, run.id], f"{title}, and it is lost")
        elif ack.kind == "token":
            self._replaced(ack.about.record, run, title)
        elif ack.kind == "reassignment":
            step, record = self._step(ack.about.record, run), ack.about.record
            kept = ack.about.repeated or self._is_journaled(record, run, step)
            self._must(kept, f"{title}, and the journal lacks it")
        elif ack.kind in ("gate", "click", "completion"):
            self._decision(ack.about.record, run, title)

    def _step(self, record: dict[str, Any], run: Run) -> Step:
        """The row of the step that an answer names."""
        found = self._plans[run.definition_id].number(record["step"])
        assert found is not None, record
        return self._tables.steps[TENANT, run.id][found]

    def _replaced(self, record: dict[str, Any], run: Run, title: str) -> None:
        """Once a token was replaced, no token of a worker fits any more."""
        step = self._step(record, run)
        fitting = {token_hash(token) for token in self._ledger.reissued[run.id, step.no]}
        held = step.note.token if step.note is not None else None
        self._must(held in fitting, f"{title}, and step {record['step']} still has the token before it")

    def _decision(self, record: dict[str, Any], run: Run, title: str) -> None:
        plan, step = self._plans[run.definition_id], self._step(record, run)
        kept = _record(step)
        is_judged = step.note is not None and step.note.permit is not None
        if "counted" in record or "votes" in kept or (is_judged and "decision" in record):
            # One of several decisions about the gate, or about what several rules hold: the journal keeps all.
            self._must(self._is_journaled(record, run, step), f"{title}, and the journal lacks it")
            return
        if plan.of(step).definition.completion is Completion.MANUAL and "decision" in record:
            return
        if "decision" in record and kept.get("decision") != record["decision"]:
            # A later decision about the same step takes its place in the row; the journal keeps both.
            self._must(self._is_journaled(record, run, step), f"{title}, and the journal lacks it")
            return
        for word in ("decision", "outcome", "by"):
            if word in record:
                self._must(kept.get(word) == record[word], f"{title}, and step {record['step']} says {kept}")

    def _has_cause(self, run: Run, event: str) -> bool:
        entries = self._tables.journal[TENANT, run.id].values()
        return any(cause.event == event for sealed in entries for cause in open_entry(sealed.body).causes)

    def _is_journaled(self, record: dict[str, Any], run: Run, step: Step) -> bool:
        """A decision about an adopted gate, made again, is in the journal of the run that it was adopted from."""
        wanted = (record["step"], record["decision"], record["by"])
        adopted = None if step.note is None else step.note.adopted
        causes = (
            cause
            for run_id in (run.id, *(() if adopted is None else (adopted.run,)))
            for sealed in self._tables.journal[TENANT, run_id].values()
            for cause in open_entry(sealed.body).causes
        )
        return any(
            ((cause.detail or {}).get("step"), (cause.detail or {}).get("decision"), cause.actor) == wanted
            for cause in causes
        )

    def _one_click_one_gate(self) -> None:
        """I11: the two clicks of one person pass at most one gate."""
        passed: dict[tuple[str, str], set[int]] = defaultdict(set)
        for (_, run_id), rows in self._tables.steps.items():
            for row in rows.values():
                comment = _record(row).get("comment", "")
                if str(comment).startswith("click"):
                    passed[run_id, comment].add(row.no)
        for (run_id, comment), gates in passed.items():
            self._must(len(gates) == 1, f"I11: {comment} in run {run_id} decided {len(gates)} gates")

    def _reruns_keep_their_requesters(self) -> None:
        """A run knows everyone who asked for it or for a run that it repeats."""
        for key in self._tables.details:
            asked = self._requesters(key)
            known = self._tables.requesters(key)
            self._must(known == asked, f"run {key[1]} was asked for by {sorted(asked)}, but knows {sorted(known)}")

    def _requesters(self, key: tuple[str, str]) -> set[str]:
        """Everyone who asked for a run or started it idle, for one that it repeats or continues, or for its parent."""
        details = self._tables.details.get(key)
        if details is None:
            return set()
        causes = (cause for sealed in self._tables.journal[key].values() for cause in open_entry(sealed.body).causes)
        # A delayed run is started by the sweep, which is no person.
        started = {cause.actor for cause in causes if cause.event == "run_started"} - {"sweep"}
        asked, link = {details.created_by, *started}, self._tables.children.link_of(*key)
        if details.rerun_of is not None:
            asked |= self._requesters((key[0], details.rerun_of))
        if link is None:
            return asked
        before = self._requesters((key[0], link.run_id))
        above = self._tables.children.link_of(key[0], link.run_id) if is_successor(link) else None
        # A chain keeps the people: the run before the last one would be one more each time.
        return asked | (before if above is None else before - {f"parent:{above.run_id}"})

    def _tokens_open_one_door(self) -> None:
        """A step that was completed by hand was completed with its own token."""
        presented: dict[tuple[str, int], set[str]] = defaultdict(set)
        for run_id, no, token in self._ledger.presented:
            presented[run_id, no].add(token_hash(token))
        for (_, run_id), rows in self._tables.steps.items():
            for row in rows.values():
                # At its deadline a step is recorded as expired, without a token. An adopted one had its token before.
                if _record(row).get("outcome", "expired") != "expired" and not is_adopted(row):
                    held = row.note.token if row.note is not None else None
                    fits = held in presented[run_id, row.no]
                    self._must(fits, f"step {row.no} of {run_id} was completed without its token")

    def _workers_said_goodbye(self) -> None:
        """Who ended in good order while nothing went wrong is on record as gone."""
        rows = {row.id: row for row in self._tables.workers.values()}
        for worker in self._ledger.left:
            state = rows[worker].state
            self._must(state is WorkerState.SHUTDOWN, f"worker {worker} ended in good order, its row says {state}")

    def _nobody_waited_in_a_circle(self) -> None:
        """Runs are locked first and in the order of their ids: two transactions never wait for each other."""
        deadlocks = self._stage.database.locks.deadlocks
        self._must(not deadlocks, f"lock order: transactions waited for each other {deadlocks} times")

    def _keys_are_kept(self) -> None:
        """I14: one run and one body for each idempotency key of a caller, and one such key for each run."""
        made: dict[tuple[str, str], set[tuple[str, bytes]]] = defaultdict(set)
        keys: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for ack in self._ledger.acks:
            if ack.kind == "start" and ack.about[0] is not None:
                made[ack.about[0]].add((ack.run_id, ack.about[1]))
                keys[ack.run_id].add(ack.about[0])
        for key, runs in made.items():
            self._must(len(runs) == 1, f"I14: the key {key} made {len(runs)} runs or took two bodies")
        for run_id, given in keys.items():
            self._must(len(given) == 1, f"I14: run {run_id} answers for the keys of {len(given)} callers")

    # -- what handlers said and did ----------------------------------------------------------------------------------
    def _outcomes_are_what_handlers_said(self) -> None:
        """Promise 3: what a worker was told was accepted is there, under its own fence, and was reported."""
        for (run_id, no, fence), kinds in self._ledger.accepted.items():
            attempt = self._tables.attempts[TENANT, run_id].get((no, fence))
            title = f"I2: step {no} of {run_id} under fence {fence}"
            self._must(all(count == 1 for count in Counter(kinds).values()), f"{title}: accepted twice: {kinds}")
            if "Completed" in kinds and attempt is not None:
                said, kept = self._ledger.answers.get((run_id, no, fence)), attempt.output
                self._must(kept is not None and decode(kept) == said, f"{title}: its accepted output was not kept")
            for kind in kinds:
                fits = attempt is not None and attempt.state in ENDS[kind]
                self._must(fits, f"{title}: {kind} was accepted, the attempt is {attempt and attempt.state}")
        acted = {effect[:3] for effect in self._ledger.effects}
        for (_, run_id), attempts in self._tables.attempts.items():
            for (no, fence), attempt in attempts.items():
                if attempt.state is AttemptState.SUCCEEDED and attempt.output is not None:
                    said = self._ledger.answers.get((run_id, no, fence))
                    title = f"promise 3: step {no} of {run_id} under fence {fence}"
                    self._must(decode(attempt.output) == said, f"{title}: its output is not what its handler said")
                    self._must((run_id, no, fence) in acted, f"promise 4: {title} succeeded without an effect")

    def _effects_have_their_key(self) -> None:
        """Promise 4: one idempotency key for all attempts of a step, and no two steps share one."""
        keys: dict[tuple[str, int], set[str]] = defaultdict(set)
        for effect in self._ledger.effects:
            keys[effect.run_id, effect.no].add(effect.key)
        for place, given in keys.items():
            self._must(len(given) == 1, f"promise 4: step {place} was given {len(given)} idempotency keys")
        owners = Counter(key for place, given in keys.items() for key in given if not self._is_made_again(*place))
        for key, count in owners.items():
            self._must(count == 1, f"promise 4: {count} steps were given the idempotency key {key}")
        for run_id, no in keys:
            step = self._tables.steps[TENANT, run_id].get(no)
            self._must(step is not None and step.fence > 0, f"step {no} of {run_id} acted without ever being claimed")
            plan = self._plan(run_id)
            first = plan.at(no).definition.pre if no < plan.size else ()
            kept = any(rule.expression == NEVER_HOLDS for rule in first or ())
            self._must(not kept, f"step {no} of {run_id} acted although a rule before it does not hold")

    def _is_made_again(self, run_id: str, no: int) -> bool:
        """Whether this is a call of an earlier run that a retry made again, under the key that it had."""
        step = self._tables.steps[TENANT, run_id].get(no)
        call = None if step is None or step.note is None else step.note.call
        return call is not None and call.key is not None

    def _exactly_once(self) -> None:
        """Promise 4: what a transactional step wrote is there once if it succeeded, and else not at all."""
        written = Counter(self._tables.notes)
        for text, count in written.items():
            run_id, no, fence = text.split()
            attempt = self._tables.attempts[TENANT, run_id].get((int(no), int(fence)))
            fits = count == 1 and attempt is not None and attempt.state is AttemptState.SUCCEEDED
            self._must(fits, f"promise 4: step {no} of {run_id} wrote {count} times under fence {fence}")
        for (_, run_id), rows in self._tables.steps.items():
            plan = self._plan(run_id)
            for row in rows.values():
                planned = plan.of(row)
                if (
                    planned.phase is Phase.MAIN
                    and planned.definition.transactional
                    and row.state is StepState.SUCCEEDED
                    and row.fence > 0  # an adopted step wrote in the run that it was adopted from
                ):
                    mine = sum(text.startswith(f"{run_id} {row.no} ") for text in written)
                    expected = 0 if is_adopted(row) or self._is_by_hand(run_id, row.no) else 1
                    self._must(
                        mine == expected, f"promise 4: step {row.no} of {run_id} succeeded and wrote {mine} times"
                    )

    def _is_by_hand(self, run_id: str, no: int) -> bool:
        """Whether an operator completed the step in place of its handler."""
        entries = self._tables.journal[TENANT, run_id].values()
        return any(
            (hop.no, hop.trigger) == (no, "operator_completed") for one in entries for hop in open_entry(one.body).hops
        )

    def _plan(self, run_id: str) -> Plan:
        return self._plans[self._tables.runs[TENANT, run_id].definition_id]

    def _outbox_is_what_was_emitted(self) -> None:
        """I8: events of accepted attempts, each once; of gates, one for each reminder and escalation; and no others."""
        for (_, run_id), told in self._tables.outbox.items():
            expected: Counter[bytes] = Counter()
            for (no, fence), attempt in self._tables.attempts[TENANT, run_id].items():
                if attempt.state in (AttemptState.SUCCEEDED, AttemptState.WAITED):
                    expected.update(self._ledger.emitted.get((run_id, no, fence), []))
            found = Counter(entry.payload for entry in told.values() if entry.name not in GATE_EVENTS.values())
            of_gates = Counter(entry.name for entry in told.values() if entry.name in GATE_EVENTS.values())
            hops = [hop for one in self._tables.journal[TENANT, run_id].values() for hop in open_entry(one.body).hops]
            due = Counter(GATE_EVENTS[hop.trigger] for hop in hops if hop.trigger in GATE_EVENTS)
            # An agent that reports that its step is blocked opens a gate and tells people of it.
            blocked = sum(hop.trigger == "held" and hop.source == "running" for hop in hops)
            due += Counter({GATE_EVENTS["escalated"]: blocked})
            self._must(of_gates == due, f"I8: gates of {run_id} told {of_gates}, and its journal has {due}")
            self._must(found == expected, f"I8: the outbox of {run_id} has {found}, its attempts emitted {expected}")

    def _inputs_were_right(self) -> None:
        """A handler was given what the step before it had produced."""
        for run_id, no, _, value in self._ledger.seen_inputs:
            plan = self._plan(run_id)
            inputs = plan.at(no).definition.inputs
            if no >= plan.size or not isinstance(inputs, dict) or "value" not in inputs:
                continue
            source = inputs["value"].split('"')[1]
            produced = self._tables.output_of((TENANT, run_id), plan.numbers[source])
            fits = produced is not None and decode(produced) == value
            self._must(fits, f"step {no} of {run_id} was given {value}, and {source} produced {produced!r}")

    # -- the judge ---------------------------------------------------------------------------------------------------
    async def _judge(self, transactor: Transactor) -> None:
        lines = []
        for _, run_id in self._tables.runs:
            lines += [encode_line(line) async for line in export_run(transactor, run_id, tenant=TENANT)]
        for worker in self._tables.workers.values():
            lines += [encode_line(line) async for line in export_worker(transactor, worker.id, tenant=TENANT)]
        report = verify_lines(lines, MACHINES) if lines else None
        for finding in report.findings if report else ():
            self._ledger.violation(f"the judge: {finding.code}: {finding.run}: {finding.message}")
        for run_id, dialect in self._tellings():
            await self._judge_in_words(transactor, run_id, dialect)

    def _tellings(self) -> Iterator[tuple[str, str]]:
        """Every run that was written in a dialect is exported in it, and one of the others in a drawn one."""
        native = []
        for _, run_id in self._tables.runs:
            written_in = self._plan(run_id).definition.dialect
            if written_in in JUDGED:
                yield run_id, written_in
            else:
                native.append(run_id)
        if native:
            random = self._stage.random("tellings")
            yield random.choice(native), random.choice(tuple(JUDGED))

    async def _judge_in_words(self, transactor: Transactor, run_id: str, dialect: str) -> None:
        """The log in a dialect's words is legal there, and keeps its invariants if the run was written in it."""
        self._ledger.met[f"a run told in the words of {dialect}"] += 1
        told = export_run(transactor, run_id, tenant=TENANT, dialect=dialect)
        report = replay_lines([encode_line(line) async for line in told], JUDGED[dialect])
        for finding in report.findings:
            self._ledger.violation(f"the judge of {dialect}: {finding.code}: {finding.run}: {finding.message}")


def _record(step: Step) -> dict[str, Any]:
    if step.note is None or step.note.record is None:
        return {}
    record: dict[str, Any] = decode(step.note.record)
    return record
