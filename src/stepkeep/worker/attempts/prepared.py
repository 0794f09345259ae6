"""Everything known about a step before its attempts: executor, pool, templates and what they read.

It is computed once per step of a definition and cached, because definitions never change. Templates are rendered on the
handler's side, where a slow one delays no heartbeat.
`Running` asks for it with each claim; it runs no handler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from stepkeep.definition.expressions.json_schema import Shape
from stepkeep.definition.python.registry import HandlerSpec, Registry, is_built_in, misfit
from stepkeep.kernel.definition import Executor as Defined
from stepkeep.kernel.definition import Rule
from stepkeep.kernel.machine.rows import Called
from stepkeep.kernel.machine.states import Category, Phase, StepState
from stepkeep.kernel.plan import ADDED, Plan, PlannedStep
from stepkeep.worker.attempts.classify import BindingError
from stepkeep.worker.attempts.executor import Executor, Job, PoolKind, Prepared
from stepkeep.worker.attempts.misfits import MisfitError
from stepkeep.worker.attempts.rule_checks import Check, checks_of
from stepkeep.worker.attempts.templates import Template, compiled, inputs_of, numbers_read
from stepkeep.worker.executors.agent import AgentExecutor
from stepkeep.worker.executors.command import CommandExecutor
from stepkeep.worker.executors.flow import FlowExecutor
from stepkeep.worker.executors.http import HttpExecutor
from stepkeep.worker.executors.python import PythonExecutor
from stepkeep.worker.executors.rules import RulesExecutor
from stepkeep.worker.executors.worktree import WorktreeExecutor
from stepkeep.worker.settings import Settings

if TYPE_CHECKING:
    from stepkeep.operations.pipeline.transact import Claim


class PreparedStep:
    """One step of one definition, prepared for attempts."""

    is_rules = False
    rules: tuple[Check, ...] = ()

    def __init__(
        self,
        plan: Plan,
        planned: PlannedStep,
        executor: Executor,
        spec: HandlerSpec | None,
        *,
        runs_alone: bool = False,
        pre: PreparedRules | None = None,
    ) -> None:
        self.plan, self.planned, self.executor, self.spec = plan, planned, executor, spec
        self.pre: Prepared | None = pre
        self.pool: PoolKind = executor.pool(planned)
        kind = planned.executor
        self.default_category: Category = Category.AGENT if isinstance(executor, AgentExecutor) else Category.UNKNOWN
        self.is_manual = planned.by_hand
        self.is_transactional = spec is not None and (
            spec.transactional if planned.phase is Phase.UNDO else planned.definition.transactional
        )
        if self.is_transactional and self.pool is PoolKind.PROCESS:
            raise BindingError("a transactional step cannot run in a process of its own: its connection stays here")
        undo = planned.definition.undo
        self.is_flow = planned.kind.is_flow
        is_call = planned.call is not None and planned.phase is Phase.MAIN
        if spec is not None and isinstance(executor, PythonExecutor | FlowExecutor) and not is_call:
            _require_fit(spec, planned, plan)
        self._inputs: Template = inputs_of(plan, planned)
        schemas = (planned.definition.input_schema, planned.definition.output_schema)
        if planned.phase is not Phase.MAIN:
            schemas = (undo.input_schema or UNSET if undo is not None else UNSET, UNSET)
        self._shape, output_shape = (None if schema is UNSET else Shape(schema) for schema in schemas)
        # The output of a step that is completed by hand comes with its completion, and is checked there.
        self.output_shape = None if self.is_manual else output_shape
        self.checks_inputs = self._shape is not None
        self._executor: Template = compiled(kind, plan, planned=planned)
        is_python = isinstance(executor, PythonExecutor | FlowExecutor)
        takes_inputs = self.checks_inputs or spec is None or not is_python or _takes_inputs(spec)
        read = numbers_read(self._executor, plan, planned)
        read |= numbers_read(self._inputs, plan, planned) if takes_inputs else {}
        first = () if pre is None else pre.needs_outputs
        self.needs_outputs = tuple(sorted({*read.items(), *first}))
        self.needs_states = pre is not None and pre.needs_states
        self.needs_details = (
            (pre is not None and pre.needs_details)
            or spec is None
            or not is_python
            or spec.signature.takes_context
            or (takes_inputs and self._inputs.reads_run)
        )
        self.needs_secrets = self._executor.secrets | (self._inputs.secrets if takes_inputs else frozenset())
        if pre is not None:
            self.needs_secrets |= pre.needs_secrets
        self.needs_network = isinstance(executor, HttpExecutor)
        self.needs_anything = (
            self.is_flow
            or is_call
            or self.needs_details
            or self.needs_states
            or self.needs_network
            or bool(self.needs_outputs)
            or bool(self.needs_secrets)
        )
        self.runs_alone = runs_alone
        self._upstream: tuple[str, ...] | None = None

    @property
    def upstream_steps(self) -> tuple[str, ...]:
        if self._upstream is None:
            self._upstream = _upstream_steps(self.plan, self.planned)
        return self._upstream

    def render(self, job: Job) -> Any:
        inputs = self._inputs.render(job)
        if self._shape is not None and (wrong := self._shape.complaints(inputs)):
            raise BindingError(f"the inputs of {self.planned.name} do not fit their schema: {'; '.join(wrong)}")
        return inputs

    def render_executor(self, job: Job) -> Defined:
        rendered: Defined = self._executor.render(job)
        return rendered


class PreparedRules:
    """The rules of a step before or after its handler, or those of the run."""

    is_rules = True
    is_flow = False
    runs_alone = False
    is_manual = False
    is_transactional = False
    needs_network = False
    checks_inputs = False
    output_shape: Shape | None = None
    default_category: Category = Category.UNKNOWN
    needs_secrets: frozenset[str] = frozenset()
    spec: HandlerSpec | None = None
    pre: Prepared | None = None

    def __init__(
        self, plan: Plan, planned: PlannedStep, executor: Executor, rules: Sequence[Rule], registry: Registry
    ) -> None:
        self.plan, self.planned, self.executor = plan, planned, executor
        self.rules: tuple[Check, ...] = checks_of(rules, plan, planned.definition.name, registry)
        programs = [check for check in self.rules if check.program is not None]
        self.pool: PoolKind = PoolKind.LOOP if programs else PoolKind.RULES
        conditions = [check.condition for check in self.rules if check.condition is not None]
        templates = [template for check in self.rules for template in check.templates]
        stated = {name for condition in conditions for name in condition.reads}
        read = stated | {name for template in templates for name in template.steps}
        if any(check.shape is not None and check.shaped is None for check in self.rules):
            read |= {plan.steps[no].name for no in plan.results}
        self.needs_outputs = tuple((name, plan.number_for(planned, name)) for name in sorted(read))
        # A program is told about its run.
        self.needs_details = (
            bool(programs)
            or any(condition.reads_input for condition in conditions)
            or any(template.reads_run for template in templates)
        )
        self.needs_states = any(name != planned.definition.name for name in stated)
        self.needs_secrets = frozenset(name for template in templates for name in template.secrets)
        self.needs_anything = self.needs_states or self.needs_details or bool(self.needs_outputs)

    @property
    def upstream_steps(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.needs_outputs)

    def render(self, job: Job) -> Any:
        return None

    def render_executor(self, job: Job) -> Defined:
        assert self.planned.executor is not None
        return self.planned.executor


class Unprepared(PreparedRules):
    """A step that could not be prepared: it has a name and a timeout, and nothing of it runs."""

    def __init__(self, plan: Plan, planned: PlannedStep, executor: Executor, is_rules: bool) -> None:
        self.plan, self.planned, self.executor = plan, planned, executor
        self.pool, self.rules, self.is_rules = PoolKind.RULES, (), is_rules
        self.needs_outputs, self.needs_details, self.needs_states = (), False, False
        self.needs_anything = False


class PreparedSteps:
    """The prepared steps so far."""

    def __init__(self, registry: Registry, settings: Settings, shared: Mapping[str, Any] | None = None) -> None:
        self._http = HttpExecutor(settings.http)
        self._python, self._agent = PythonExecutor(registry, shared), AgentExecutor(registry, shared)
        self._flow = FlowExecutor(registry, shared)
        self._command, self._worktree = CommandExecutor(settings.commands), WorktreeExecutor(settings.commands)
        self._rules, self._registry = RulesExecutor(self._command, shared), registry
        self.registry = registry
        self._known: dict[tuple[int, int], PreparedStep | PreparedRules] = {}
        self._known_rules: dict[tuple[int, int], PreparedRules] = {}
        self._known_calls: dict[tuple[int, str], PreparedStep | PreparedRules] = {}
        self._sequences: dict[int, bool] = {}

    def of(self, claim: Claim) -> PreparedStep | PreparedRules:
        """The prepared step for a claim: the step itself, or its rules alone."""
        if claim.step.state is StepState.VALIDATING:
            return self.rules_of(claim)
        if claim.planned.call is not None:
            return self._called(claim, claim.planned.call)
        key = (claim.plan.definition_id, claim.step.no)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._make(claim)
        return found

    def _called(self, claim: Claim, call: Called) -> PreparedStep | PreparedRules:
        """The prepared step of a call. Calls with one template share it; an undo reads the output of its own call, and
        an added step those of other ones."""
        if claim.planned.phase is not Phase.MAIN or call.kind == ADDED:
            return self._make(claim)
        key = (claim.plan.definition_id, call.step)
        found = self._known_calls.get(key)
        if found is None:
            found = self._known_calls[key] = self._make(claim)
        return found

    def rules_of(self, claim: Claim) -> PreparedRules:
        key = (claim.plan.definition_id, claim.step.no)
        found = self._known_rules.get(key)
        if found is None:
            rules = claim.planned.definition.rules
            found = self._known_rules[key] = PreparedRules(
                claim.plan, claim.planned, self._rules, rules, self._registry
            )
        return found

    def unprepared(self, claim: Claim) -> PreparedRules:
        judging = claim.step.state is StepState.VALIDATING or claim.planned.phase is Phase.CHECK
        return Unprepared(claim.plan, claim.planned, self._rules, judging)

    async def aclose(self) -> None:
        await self._http.aclose()

    def forget_loop(self) -> None:
        """The handlers' event loop was replaced: drop everything that is bound to the old one."""
        self._http.forget_loop()

    def _make(self, claim: Claim) -> PreparedStep | PreparedRules:
        plan, planned = claim.plan, claim.planned
        assert planned.executor is not None
        alone = self._is_sequence(plan)
        first = planned.definition.pre if planned.has_pre else None
        pre = PreparedRules(plan, planned, self._rules, first, self._registry) if first else None
        match planned.executor.__struct_config__.tag:
            case "python" if is_built_in(planned.executor):
                return PreparedStep(plan, planned, self._worktree, None, runs_alone=alone, pre=pre)
            case "python" if planned.kind.is_flow:
                return PreparedStep(plan, planned, self._flow, self._flow.spec(planned), pre=pre)
            case "python":
                spec = self._python.spec(planned)
                return PreparedStep(plan, planned, self._python, spec, runs_alone=alone, pre=pre)
            case "agent":
                spec = self._agent.spec(planned)
                return PreparedStep(plan, planned, self._agent, spec, runs_alone=alone, pre=pre)
            case "command":
                return PreparedStep(plan, planned, self._command, None, runs_alone=alone, pre=pre)
            case "http":
                return PreparedStep(plan, planned, self._http, None, runs_alone=alone, pre=pre)
            case _:
                return self.rules_of(claim)

    def _is_sequence(self, plan: Plan) -> bool:
        found = self._sequences.get(plan.definition_id)
        if found is None:
            found = not plan.segments and len(plan.roots) == 1 and all(len(step.dependents) <= 1 for step in plan.steps)
            self._sequences[plan.definition_id] = found
        return found


def _require_fit(spec: HandlerSpec, planned: PlannedStep, plan: Plan) -> None:
    said = misfit(spec, planned.inputs, plan.definition)
    if said is not None:
        raise MisfitError(spec.name, said)


def _takes_inputs(spec: HandlerSpec) -> bool:
    return bool(spec.signature.names) or spec.signature.takes_any


def _upstream_steps(plan: Plan, planned: PlannedStep) -> tuple[str, ...]:
    """The names of all steps that end before this one can begin."""
    if planned.phase is not Phase.MAIN:
        return tuple(step.name for step in plan.steps)
    found: dict[str, None] = {}
    pending = [planned]
    while pending:
        for edge in pending.pop().definition.depends_on:
            if edge.step not in found:
                found[edge.step] = None
                pending.append(plan.steps[plan.numbers[edge.step]])
    return tuple(sorted(found, key=plan.numbers.__getitem__))
