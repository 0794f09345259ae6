"""Planted bugs of flows: how calls are recorded, how their ends wake the flow, and how it is replayed.

Data like `mutants`, which has them among its own.
"""

from __future__ import annotations

from stepkeep_lab.simulation.mutation import Edit, Mutant

FLOW_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "flow-key-kept-after-undo",
        "a call that a retry makes again keeps the key of the earlier run, whose undo of it was begun",
        (Edit("kernel.composition.kept_calls:_keys", "not is_undone_once", "True"),),
    ),
    Mutant(
        "flow-key-lost",
        "a call that a retry makes again with equal arguments has a new key",
        (Edit("kernel.composition.flows:kept_key", "None)", "None) and None"),),
    ),
    Mutant(
        "flow-adopts-beyond-the-prefix",
        "a flow is given ends of calls that came after one which it makes again",
        (Edit("kernel.composition.kept_calls:_course", "if cut is None else Why.FOLLOWS", "if True else None"),),
    ),
    Mutant(
        "flow-adopts-undone-call",
        "a call that the earlier run undid is adopted",
        (
            Edit(
                "kernel.composition.kept_calls:_why_again",
                "plan.at(row.no).name in undone or (undo is not None and has_begun(undo))",
                "False",
            ),
        ),
    ),
    Mutant(
        "flow-place-left-free",
        "the next call of a flow takes the place after those that it adopted, where one before them is free",
        (Edit("kernel.composition.flows:places_of", "grown.free[:calls]", "grown.free[:0]"),),
    ),
    Mutant(
        "flow-patched-answer-changes",
        "the answer of ctx.patched is not recorded, and is another one after the next call",
        (Edit("worker.flows.replay:Flow.patched", "is_kept=is_new", "is_kept=False"),),
    ),
    Mutant(
        "flow-call-added-twice",
        "a flow that goes on reports calls again that it has reported",
        (Edit("worker.flows.replay:Flow.was_recorded", "self._gaps = calls,", "self._gaps = 0,"),),
    ),
    Mutant(
        "flow-misfit-fails-the-run",
        "code that does not fit what a flow has called fails its run",
        (
            Edit(
                "worker.executors.flow:FlowExecutor.run",
                "return self._unfit(job, problem)",
                "raise",
            ),
        ),
    ),
    Mutant(
        "flow-own-error-fails-the-run",
        "an error of the own code of a flow fails its run when no attempt is left",
        (
            Edit(
                "kernel.decide.execution:_exhaust",
                "draft.planned(step).stays_exhausted or unfit is not None",
                "draft.planned(step).stays_exhausted",
            ),
        ),
    ),
    Mutant(
        "flow-tried-code-again",
        "a flow that holds is made ready for code that it has tried",
        (
            Edit("kernel.composition.flows:change_code", "event.code in tried", "False"),
            Edit("operations.continuation.other_code:_events", "code not in one.tried", "True"),
        ),
    ),
    Mutant(
        "flow-held-end-wakes",
        "the end of a call makes a flow ready that holds for other code",
        (
            Edit(
                "kernel.composition.elements:call_settled",
                "if owner.state is StepState.AWAITING_CHILDREN:",
                "if owner.state is not StepState.READY:",
            ),
        ),
    ),
    Mutant(
        "flow-wake-up-lost",
        "a call that settles while its flow runs does not wake the flow after its suspension",
        (Edit("kernel.composition.flows:suspend", "if settled > outcome.seen or", "if False or"),),
    ),
    Mutant(
        "flow-cancel-loses-a-result",
        "a flow that cancels a call which has settled meanwhile takes the end of that call back",
        (
            Edit(
                "kernel.composition.flows:_cancel",
                "if row.state in STEP_TERMINAL:",
                "if row.state in STEP_TERMINAL and (draft.put(replace(row, state=StepState.CANCELLED)) or True):",
            ),
        ),
    ),
    Mutant(
        "flow-cancel-without-wake-up",
        "a flow that cancels the last of its calls is not woken",
        (Edit("kernel.composition.flows:suspend", "or not owner.unmet", "or False"),),
    ),
    Mutant(
        "flow-settled-call-again",
        "a replay takes calls that are on record for new ones, and they run again",
        (
            Edit(
                "worker.flows.replay:Flow.__init__",
                "self._recorded_calls = len(self._known)",
                "self._recorded_calls = 0",
            ),
        ),
    ),
    Mutant(
        "flow-ahead-of-the-record",
        "a flow is resumed without a look at what the decision has recorded",
        (Edit("kernel.composition.resuming:resume", "if said is not None:", "if False:"),),
    ),
    Mutant(
        "flow-ahead-value-kept",
        "a flow that was fed the end of an attempt keeps it when another attempt of the call is recorded",
        (
            Edit(
                "worker.flows.replay:Flow.fits",
                "return ahead == [(one.no, one.fence) for one in",
                "return [no for no, _ in ahead] == [one.no for one in",
            ),
        ),
    ),
    Mutant(
        "flow-child-left-out",
        "the engine takes the wait of a flow for that of a step with a child, and forgets the children of calls",
        (
            Edit(
                "kernel.composition.child_runs:awaits_child",
                "draft.planned(step).kind.child is not None",
                "step.no < draft.plan.size",
            ),
        ),
    ),
    Mutant(
        "flow-child-undo-lost",
        "the undo of a call that started a child does not know which run it rolls back",
        (
            Edit(
                "kernel.decide.compensation:_add_hook",
                "planned is not None and planned.kind.undoes_child",
                "planned is not None and planned.kind.undoes_child and undone.no < draft.plan.size",
            ),
        ),
    ),
    Mutant(
        "successor-asked-too-early",
        "a flow that continues as new has its successor before its run has succeeded",
        (
            Edit("kernel.composition.child_runs:open_child", "if not continues:", "if True:"),
            Edit("kernel.composition.child_runs:ask_for_successor", "not grown.continues", "True"),
        ),
    ),
    Mutant(
        "successor-forgotten-after-rules",
        "a run with rules of its own does not ask for the run as which its flow continues",
        (Edit("kernel.decide.execution:pass_run", "ask_for_successor(draft)", "pass"),),
    ),
    Mutant(
        "successor-with-a-part-of-its-input",
        "a run as which a flow continues lacks a part of the input that the flow gave",
        (
            Edit(
                "operations.children.children:ChildSweep._request",
                "input=msgspec.json.encode(given)",
                "input=msgspec.json.encode({**given, 'told': None} if continues else given)",
            ),
        ),
    ),
    Mutant(
        "successor-lost-in-a-crash",
        "the link of a successor says that it has started before the transaction that starts it",
        (
            Edit(
                "operations.children.children:ChildSweep._start",
                "await self._transactor.run(",
                "begun = replace(child, state=ChildState.STARTED, todo=None, todo_at=None)\n"
                "        is_child(child.child_id) or await self._save(begun, ChildTodo.START)\n"
                "        await self._transactor.run(",
            ),
            Edit(
                "operations.children.children:ChildSweep._start",
                "lambda: _FirstOfChild(child, request, self._starter, self._transactor.plans), None",
                "lambda: _FirstOfChild(child, request, self._starter, self._transactor.plans) "
                "if is_child(child.child_id) else StartBatch([request], self._starter.template, self._starter.live), "
                "None",
            ),
        ),
    ),
    Mutant(
        "successor-refused-for-its-key",
        "a successor whose business key is taken for a while never starts",
        (
            Edit(
                "operations.children.children:ChildSweep._start",
                "except Conflict:",
                "except Conflict as problem:\n        await self._refuse(child, str(problem))",
            ),
        ),
    ),
    Mutant(
        "checkpoint-without-fence",
        "a checkpoint is recorded under whichever claim it was made",
        (
            Edit(
                "kernel.decide.checkpoints:checkpoint",
                "step.worker != event.worker or step.fence != event.fence",
                "step.worker is None",
            ),
        ),
    ),
    Mutant(
        "checkpoint-forgotten",
        "what an attempt has recorded is lost with its claim",
        (
            Edit(
                "operations.remote.recorded_checkpoints:CheckpointReader.page",
                "rows = await self._store.read_checkpoints(*asked)",
                "rows = [one for one in await self._store.read_checkpoints(*asked) if one.fence == claim.step.fence]",
            ),
        ),
    ),
    Mutant(
        "checkpoint-never-read",
        "an attempt looks for no checkpoints of earlier ones",
        (
            Edit(
                "worker.attempts.checkpoints:AttemptCheckpoints.__init__",
                "FIRST_CHECKPOINT if is_begun else None",
                "None",
            ),
        ),
    ),
    Mutant(
        "checkpoint-of-another-step",
        "a worker keeps new checkpoints by run and name alone: a step gets the value of another one",
        (
            Edit(
                "worker.attempts.checkpoints:AttemptCheckpoints.__init__",
                "self._new: dict[str, bytes] = {}",
                "self._new = keeper.__dict__.setdefault('new', {}).setdefault(job.claim.run_id, {})",
            ),
        ),
    ),
    Mutant(
        "checkpoint-not-awaited",
        "a handler goes on before its checkpoint is recorded",
        (
            Edit(
                "worker.attempts.once:await_once",
                "await answer_of(checkpoints.record(name, found))",
                "__import__('asyncio').ensure_future(checkpoints.record(name, found))",
            ),
        ),
    ),
)
