"""A run that a program works on itself: which capabilities the program lacks for it, and when its work there is over.

Reads only, and decides nothing. A program grants itself no capability because a definition asks for it. `work_on` of
the engine and the command line call it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from stepkeep.definition.native.build import given_words, has_word
from stepkeep.kernel.errors import NotFound
from stepkeep.kernel.machine.rows import Step
from stepkeep.kernel.machine.states import RUN_TERMINAL, STEP_TERMINAL, STEP_WAITING, Phase, RunState, StepState
from stepkeep.kernel.plan import Plan, queue_specs
from stepkeep.operations import validate
from stepkeep.operations.pipeline.plans import plan_for, plan_of
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.remote.services import WaitingStep
from stepkeep.operations.runs.causes import span
from stepkeep.operations.runs.diagnosis import read_staff
from stepkeep.operations.runs.sleeping import is_asleep
from stepkeep.operations.runs.views import is_sleep


class Lacking(NamedTuple):
    """A step, and the capabilities that it needs and the program was not given."""

    step: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        named = f"the capabilit{'y' if len(self.words) == 1 else 'ies'} {', '.join(self.words)}"
        return f"{self.step} needs {named}, which this program was not given"


def lacking_of(plan: Plan, capabilities: Collection[str]) -> dict[int, Lacking]:
    """The steps of a plan that need other capabilities than these, by number."""
    found: dict[int, Lacking] = {}
    if not any(step.capabilities or (step.undo and step.undo.capabilities) for step in plan.definition.work):
        return found
    for no, spec in enumerate(queue_specs(plan.definition)):
        asked = () if spec is None else spec.capabilities
        words = tuple(word for word in given_words(asked) if not has_word(capabilities, word))
        if words:
            found[no] = Lacking(plan.at(no).name, words)
    return found


async def leased_elsewhere(
    transactor: Transactor, tenant: str, run_id: str, own: Collection[str | None] = ()
) -> list[str]:
    """One sentence for each step of a run that a worker other than `own` holds: which worker, and when the step goes
    on if that worker is gone. A caller that continues a run after a crash waits for these leases."""
    store = transactor.store
    held = [step for step in await store.read_steps(tenant, run_id) if step.worker is not None and step.due_at]
    if not held:
        return []
    plan = await plan_of(transactor, tenant, run_id)
    now, rows = await store.now(), {row.no: row for row in await store.list_workers(tenant, live_only=True)}
    said = []
    for step in held:
        row, name, left = rows.get(step.worker or 0), plan.of(step).name, span(max(0, (step.due_at or now) - now))
        if row is None:
            said.append(f"{name} is leased to a worker that is gone; it goes on in {left}")
        elif row.id not in own:
            heard = f"heard {span(max(0, now - row.heard_at))} ago"
            said.append(
                f"{name} is leased to worker {row.id}, {heard}; if that worker is gone, {name} goes on in {left}"
            )
    return said


class OwnRun:
    """One run and the capabilities of the program that works on it. `tell` gets, once and at the beginning, each
    step that needs another one. Without `until_blocked`, the work is over only when the run has ended."""

    def __init__(
        self,
        transactor: Transactor,
        tenant: str,
        run_id: str,
        *,
        capabilities: Iterable[str],
        until_blocked: bool = True,
        report: Callable[[Lacking], None],
    ) -> None:
        self._transactor, self._tenant, self._id = transactor, tenant, validate.run_id(run_id)
        self._has, self._until_blocked, self._tell = frozenset(capabilities), until_blocked, report
        self._plan: Plan | None = None
        self._lacking: dict[int, Lacking] = {}
        self.stranded: tuple[Lacking, ...] = ()
        """Why the run cannot go on here: the steps that no live worker may take."""

    async def is_over(self) -> bool:
        """Whether the run has ended, or only people, messages or capabilities of others can move it."""
        found = await self._transactor.store.read_run(self._tenant, self._id)
        if found is None:
            raise NotFound(f"there is no run {self._id}")
        run = found.run
        if run.state in RUN_TERMINAL:
            return True
        if self._plan is None:
            self._learn(await plan_for(self._transactor, run))
        if not self._until_blocked:
            return False
        if run.state is RunState.PAUSED:
            return run.leased == 0
        if run.state in (RunState.BLOCKED, RunState.IDLE):
            return not await is_asleep(self._transactor, run)
        return bool(self._lacking) and await self._is_stranded()

    def _learn(self, plan: Plan) -> None:
        self._plan, self._lacking = plan, lacking_of(plan, self._has)
        for no, said in self._lacking.items():
            if plan.at(no).phase is Phase.MAIN:
                self._tell(said)

    async def _is_stranded(self) -> bool:
        """Whether each step that could move lacks a capability here, and no live worker may take it."""
        assert self._plan is not None
        steps = await self._transactor.store.read_steps(self._tenant, self._id)
        active = [step for step in steps if step.state not in STEP_TERMINAL and step.state is not StepState.PENDING]
        written_no = self._plan.written_no
        stranded = [step for step in active if step.ready_at is not None and written_no(step.no) in self._lacking]
        waiting = [step for step in active if step.state in STEP_WAITING and not is_sleep(self._plan, step)]
        if not stranded or len(stranded) + len(waiting) < len(active) or await self._is_served(stranded):
            return False
        self.stranded = tuple(self._lacking[written_no(step.no)] for step in stranded)
        return True

    async def _is_served(self, steps: Sequence[Step]) -> bool:
        assert self._plan is not None
        staff, specs = await read_staff(self._transactor.store, self._tenant), queue_specs(self._plan.definition)
        live = [known for known in staff.workers if known.is_live(staff.now)]
        return any(
            (spec := specs[self._plan.written_no(step.no)]) is not None
            and not known.lacks(spec, step.queue, WaitingStep(self._id, self._plan.definition_id, step.no))
            for step in steps
            for known in live
        )
