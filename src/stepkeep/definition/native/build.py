"""Builds the kernel's definition from checked blocks, with every default made explicit.

Only this module holds the defaults of the native format. It takes blocks that passed every check and cannot fail. The
native front end calls it, also for the Python API.

What rules that are programs, and versions of flows, ask of a worker, as words among the capabilities of a queue.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from stepkeep.definition.expressions.conditions import own_output, own_output_if_any
from stepkeep.definition.expressions.elements import WHOLE_ITEM
from stepkeep.definition.expressions.scope import CAPABILITY, secret_capability, secrets_read
from stepkeep.definition.expressions.template_text import WHOLE_INPUT
from stepkeep.definition.native.transition_hooks import hooks_of
from stepkeep.definition.native.triggers import triggers_of
from stepkeep.definition.native.validators import attempts_bound
from stepkeep.definition.native.written import (
    ApprovalBlock,
    BudgetBlock,
    ChildBlock,
    DependencyBlock,
    DutyBlock,
    LevelBlock,
    LimitBlock,
    PolicyRuleBlock,
    RetryBlock,
    RuleBlock,
    SleepBlock,
    StepBlock,
    UndoBlock,
    WaitBlock,
    WorkflowBlock,
    about_archive,
)
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.definition.python.retry import NATIVE_RETRY, undo_policy
from stepkeep.kernel import definition as kernel
from stepkeep.kernel.definition import SECOND, Handler, Rule
from stepkeep.kernel.machine.states import Category, OnFailure, StepState
from stepkeep.kernel.plan import FLOW

HANDLER: Final = "handler:"
COMMANDS: Final = "runs:commands"
VERSION: Final = "version:"
"""A worker declares its version by the capability `version:2.5`; a step that needs at least 2.1 needs `version:2.1`."""


def has_word(capabilities: Collection[str], word: str) -> bool:
    """Whether a worker with these capabilities has this one. A version is had by every later one.

    >>> has_word({"gpu", "version:2.10"}, "version:2.9"), has_word({"version:2.10"}, "gpu")
    (True, False)
    """
    if not word.startswith(VERSION):
        return word in capabilities
    wanted = _parts(word)
    return any(_parts(one) >= wanted for one in capabilities if one.startswith(VERSION))


def _parts(word: str) -> tuple[tuple[int, int, str], ...]:
    """The parts of a version, so that 2.10 is later than 2.9, and 2.0 later than 2.0-beta."""
    said = word.removeprefix(VERSION).lstrip("v").split("+")[0]
    number, _, before = said.partition("-")
    parts = [(1, int(one), "") if one.isdecimal() else (0, 0, one) for one in number.split(".")]
    while len(parts) > 1 and parts[-1] == (1, 0, ""):
        parts.pop()
    return (*parts, (0, 0, before)) if before else (*parts, (0, 1, ""))


def rule_capabilities(rules: Iterable[Rule]) -> set[str]:
    """The words of these rules, with those of the secrets that they read."""
    words: set[str] = set()
    for rule in rules:
        program = rule.program
        if program is msgspec.UNSET:
            continue
        texts = [None if rule.inputs is msgspec.UNSET else rule.inputs]
        if isinstance(program, Handler):
            words.add(f"{HANDLER}{program.name}")
        else:
            words.add(COMMANDS)
            texts += [list(program.argv), program.env, program.cwd]
        words.update(secret_capability(name) for name in secrets_read(texts))
    return words


def handlers_among(capabilities: Iterable[str]) -> tuple[str, ...]:
    """The handlers of rules among the capabilities of a queue."""
    return tuple(word.removeprefix(HANDLER) for word in capabilities if word.startswith(HANDLER))


def flow_version(capabilities: Iterable[str]) -> int | None:
    """The version of a flow among the capabilities of its queue; None if any will do.

    >>> flow_version(["gpu", "flow-version:2"])
    2
    """
    return next((int(word.removeprefix(FLOW)) for word in capabilities if word.startswith(FLOW)), None)


def given_words(capabilities: Iterable[str]) -> list[str]:
    """The capabilities that a worker is given; the others follow from its handlers, policies and secrets."""
    return [word for word in capabilities if word != COMMANDS and not word.startswith((HANDLER, CAPABILITY, FLOW))]


def in_words(capabilities: Iterable[str]) -> str:
    """What a queue asks of a worker besides its executor, for people."""
    own = {HANDLER: "the rule's handler ", CAPABILITY: "secret ", FLOW: "its version "}
    told = []
    for word in capabilities:
        prefix = next((known for known in own if word.startswith(known)), "")
        told.append("commands" if word == COMMANDS else own.get(prefix, "") + word.removeprefix(prefix))
    return ", ".join(told)


STEP_TIMEOUT = 300 * SECOND
LEASE = 30 * SECOND
GRACE = 30 * SECOND

NOTHING_TO_UNDO = ("read", "irreversible")
"""Effects of a step with `workflow` that no rollback of its child could undo."""

CHILDREN_OF_MAP = 100
"""How long the list of a map of child workflows may be if it does not say; the size of a tree of runs is limited."""

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""HTTP methods that change nothing on the server (RFC 9110, section 9.2.1)."""

IN_SEQUENCE = (StepState.SUCCEEDED, StepState.SKIPPED)
_ENDINGS = (StepState.SUCCEEDED, StepState.SKIPPED, StepState.FAILED, StepState.CANCELLED)


def is_sequence(steps: Sequence[StepBlock]) -> bool:
    """Without any `depends_on`, each step follows the one before."""
    return all(step.depends_on is None for step in steps)


def build(written: WorkflowBlock, handlers: Registry | None = None) -> kernel.Definition:
    """The canonical definition. Registered handlers add their own settings."""
    policy = OnFailure(written.on_failure)
    sequence = is_sequence(written.steps)
    steps = []
    for place, step in enumerate(written.steps):
        if sequence and place:
            after: tuple[kernel.Dependency, ...] = (
                kernel.Dependency(step=written.steps[place - 1].name, allow=IN_SEQUENCE),
            )
        else:
            after = tuple(_dependency(edge) for edge in step.depends_on or ())
        steps.append(_step(step, place + 1, after, policy, handlers))
    final = _rules(written.rules, WHOLE_INPUT if written.output is None else "${{ output }}")
    if written.output_schema is not None:
        final = (*final, kernel.Rule(name="output_schema", schema=written.output_schema))
    asked = tuple(sorted(rule_capabilities(final)))
    return kernel.Definition(
        name=written.workflow,
        version=written.version,
        steps=tuple(steps),
        description=written.description,
        timeout=written.timeout,
        on_failure=policy,
        hook_failure=kernel.HookFailure(written.hook_failure),
        rules=final,
        output=written.output,
        input_fields=None if written.input is None else tuple(written.input),
        input_types={
            name: kernel.InputField(
                type=kernel.InputType(field.type),
                required=field.required,
                description=field.description or msgspec.UNSET,
            )
            for name, field in (written.input or {}).items()
        },
        lease=LEASE if written.lease is None else written.lease,
        grace=GRACE if written.grace is None else written.grace,
        priority=written.priority,
        labels=dict(sorted(written.labels.items())),
        duties=tuple(_duties(written.duties)) or msgspec.UNSET,
        policy=policy_of(written.policy) or msgspec.UNSET,
        budget=msgspec.UNSET if written.budget is None else budget_of(written.budget),
        triggers=triggers_of(written.triggers) or msgspec.UNSET,
        hooks=hooks_of(written) or msgspec.UNSET,
        slots=msgspec.UNSET if written.slots is None else written.slots,
        input_schema=msgspec.UNSET if written.input_schema is None else written.input_schema,
        check_capabilities=asked or msgspec.UNSET,
        about=about_archive(written.archive),
    )


def _step(
    step: StepBlock,
    place: int,
    after: tuple[kernel.Dependency, ...],
    policy: OnFailure,
    handlers: Registry | None,
) -> kernel.StepDefinition:
    spec = _spec(step, handlers)
    whole = WHOLE_INPUT if step.map is None else WHOLE_ITEM
    given = step.with_ if "with_" in step.model_fields_set else whole
    pre, post = _rules(step.pre, given), _rules([*step.rules, *step.validate_, *step.post], own_output(step.name))
    of_rules = rule_capabilities((*pre, *post))
    undo = _undo(step, spec, handlers, inherits=not of_rules)
    effect = step.effect or (spec.effect if spec else None) or _assumed_effect(step, undo)
    completion = step.completion
    return kernel.StepDefinition(
        name=step.name,
        order=place if step.order is None else step.order,
        executor=_executor(step),
        approval=approval_of(step.approval),
        hold=approval_of(step.hold),
        wait=_wait(step.wait) if step.sleep is None else _sleep(step.sleep),
        inputs=_inputs(step, whole),
        depends_on=after,
        condition=step.if_,
        timeout=step.timeout or (spec.timeout if spec else None) or STEP_TIMEOUT,
        retry=merged_retry(step.retry, (spec.retry if spec else None) or NATIVE_RETRY),
        on_failure=policy if step.on_failure is None else OnFailure(step.on_failure),
        effect=kernel.Effect(effect),
        undo=undo,
        compensate_when=kernel.CompensateWhen(step.compensate_when),
        rules=post,
        completion=kernel.Completion(completion.mode if completion else "auto"),
        completion_deadline=completion.deadline if completion else None,
        transactional=step.transactional or (spec is not None and spec.transactional),
        capabilities=tuple(
            sorted(
                {
                    *step.capabilities,
                    *(spec.capabilities if spec else ()),
                    *_secret_capabilities(step),
                    *of_rules,
                }
            )
        ),
        queue=step.queue or (spec.queue if spec else ""),
        description=step.description,
        input_schema=msgspec.UNSET if step.input_schema is None else step.input_schema,
        output_schema=msgspec.UNSET if step.output_schema is None else step.output_schema,
        on_exhausted=_on_exhausted(step),
        pre=pre or msgspec.UNSET,
        growth=_growth(step, policy, handlers),
        child=_child(step.workflow),
        resources=dict(sorted(step.resources.items())) or msgspec.UNSET,
        limits=tuple(map(_limit, step.limits)) or msgspec.UNSET,
    )


def _limit(block: LimitBlock) -> kernel.Limit:
    rate, period = block.rate or (None, kernel.SECOND)
    return kernel.Limit(
        name=block.name,
        per=block.per or msgspec.UNSET,
        running=block.running or msgspec.UNSET,
        weight=block.weight,
        rate=rate or msgspec.UNSET,
        period=period,
        burst=block.burst,
        units=block.units,
    )


def _growth(step: StepBlock, policy: OnFailure, handlers: Registry | None) -> kernel.Growth | msgspec.UnsetType:
    if step.switch is not None:
        cases = [
            # A case has the name of its step: its undo reads its output as that of the step.
            (case, _step(case.model_copy(update={"name": step.name}), place + 1, (), policy, handlers))
            for place, case in enumerate(step.switch)
        ]
        return kernel.Switch(
            max=len(cases),
            cases=tuple(
                kernel.Case(name=case.name, when=case.if_, step=msgspec.structs.replace(built, condition=None))
                for case, built in cases
            ),
        )
    if step.map is not None:
        block = step.map
        share = block.tolerate if isinstance(block.tolerate, float) else None
        return kernel.Map(
            over=block.over,
            max=block.max if step.workflow is None or "max" in block.model_fields_set else CHILDREN_OF_MAP,
            in_flight=block.in_flight,
            tolerate=block.tolerate if isinstance(block.tolerate, int) else 0,
            tolerate_share=share,
            early_stop=block.early_stop,
            deadline=block.deadline,
        )
    if step.flow is not None:
        version = msgspec.UNSET if step.flow.version is None else step.flow.version
        return kernel.Flow(max=step.flow.max_calls, deadline=step.flow.deadline, version=version)
    if step.then is not None:
        return kernel.Then(max=step.then.max_steps, deadline=step.then.deadline)
    if step.repeat is None:
        return msgspec.UNSET
    loop = step.repeat
    return kernel.Loop(
        max=loop.max, until=loop.until, as_long_as=loop.while_, pause=loop.pause or 0, deadline=loop.deadline
    )


def _child(block: ChildBlock | None) -> kernel.SubWorkflow | msgspec.UnsetType:
    if block is None:
        return msgspec.UNSET
    return kernel.SubWorkflow(
        workflow=block.name,
        version=block.version or 0,
        deadline=block.deadline,
        detached=True if block.detached else msgspec.UNSET,
    )


def _assumed_effect(step: StepBlock, undo: kernel.Undo | None) -> kernel.Effect:
    """The effect of a step whose definition and handler state none."""
    if undo is not None:
        return kernel.Effect.WRITE
    if step.workflow is not None:
        return kernel.Effect.UNKNOWN
    reads = step.http.method in SAFE_METHODS if step.http is not None else _executor(step) is None
    return kernel.Effect.READ if reads else kernel.Effect.UNKNOWN


def _undo(
    step: StepBlock, spec: HandlerSpec | None, handlers: Registry | None, *, inherits: bool
) -> kernel.Undo | None:
    block = step.undo
    if block is None and spec is not None and spec.undo is not None:
        block = UndoBlock(uses=spec.undo)
    if block is None:
        rolls_back = step.workflow is not None and not step.workflow.detached and step.effect not in NOTHING_TO_UNDO
        return kernel.Undo(executor=kernel.UndoChild()) if rolls_back else None
    hook = _spec(block, handlers)
    executor = _executor(block)
    assert executor is not None
    # If an attempt alone triggers the undo, there may be no result to pass to it.
    otherwise = own_output(step.name) if step.compensate_when == "succeeded" else own_output_if_any(step.name)
    return kernel.Undo(
        executor=executor,
        inputs=_inputs(block, otherwise),
        timeout=block.timeout or (hook.timeout if hook else None) or STEP_TIMEOUT,
        retry=merged_retry(block.retry, undo_policy(hook.retry if hook else None)),
        capabilities=_own_capabilities(block, hook, step, spec, inherits=inherits),
        queue=block.queue if block.queue is not None else (hook.queue if hook and hook.queue else None),
        on_exhausted=_on_exhausted(block),
    )


def _on_exhausted(block: StepBlock | UndoBlock) -> kernel.OnExhausted | msgspec.UnsetType:
    if isinstance(block, StepBlock) and block.flow is not None and "on_exhausted" in block.model_fields_set:
        # Without a word, a flow holds after errors of its own code alone.
        return kernel.OnExhausted(block.on_exhausted)
    return kernel.OnExhausted.HOLD if block.on_exhausted == "hold" else msgspec.UNSET


def _own_capabilities(
    block: UndoBlock, hook: HandlerSpec | None, step: StepBlock, spec: HandlerSpec | None, *, inherits: bool
) -> tuple[str, ...] | None:
    """What the undo step requires of a worker by itself: as written, or as its handler declares, and its secrets.

    It inherits what its step requires, unless that includes what the step's rules require.
    """
    declared = hook.capabilities if hook else ()
    secrets = _secret_capabilities(block)
    if block.capabilities is None and not declared:
        if inherits and secrets == _secret_capabilities(step):
            return None
        return tuple(sorted({*step.capabilities, *(spec.capabilities if spec else ()), *secrets}))
    return tuple(sorted({*(block.capabilities or ()), *declared, *secrets}))


def _secret_capabilities(block: StepBlock | UndoBlock) -> list[str]:
    """A step is claimed only by a worker that has the secrets it reads."""
    command, http = block.command, block.http
    texts = [
        block.with_,
        [] if command is None else [command.argv, command.env, command.cwd],
        [] if http is None else [http.url, http.headers, http.body],
    ]
    return [secret_capability(name) for name in secrets_read(texts)]


def _spec(block: StepBlock | UndoBlock, handlers: Registry | None) -> HandlerSpec | None:
    if handlers is None:
        return None
    if block.uses is not None:
        return handlers.get(block.uses)
    return handlers.agent(block.agent) if block.agent is not None else None


def _executor(block: StepBlock | UndoBlock | RuleBlock) -> kernel.Executor | None:
    if block.uses is not None:
        return kernel.Handler(name=block.uses)
    if block.command is not None:
        command = block.command
        env = dict(sorted(command.env.items()))
        return kernel.Command(argv=tuple(command.argv), env=env, cwd=command.cwd)
    if isinstance(block, RuleBlock):
        return None
    if block.agent is not None:
        return kernel.Agent(name=block.agent, action=block.action or "")
    if block.http is not None:
        http = block.http
        headers = dict(sorted(http.headers.items()))
        return kernel.Http(method=http.method, url=http.url, headers=headers, body=http.body)
    return None


def _inputs(block: StepBlock | UndoBlock, otherwise: str) -> Any:
    if "with_" in block.model_fields_set:
        return block.with_
    takes_input = block.uses is not None or block.agent is not None or getattr(block, "workflow", None) is not None
    return otherwise if takes_input else None


def merged_retry(block: RetryBlock | None, base: kernel.Retry) -> kernel.Retry:
    """The base, with written values replacing it field by field."""
    if block is None:
        return base
    given: dict[str, Any] = {name: getattr(block, name) for name in block.model_fields_set}
    if "backoff" in given:
        given["backoff"] = kernel.Backoff(given["backoff"])
    if "on" in given:
        given["on"] = tuple(sorted({Category(name) for name in given["on"]}))
    if "max_elapsed" in given and "max_attempts" not in given:
        # The time ends it, not the number of attempts that a policy without a time has.
        given["max_attempts"] = attempts_bound()
    return msgspec.structs.replace(base, **given)


def _dependency(edge: DependencyBlock) -> kernel.Dependency:
    # Success always counts; `allow` adds to it. The order is fixed, so that equal definitions have equal digests.
    allowed = {"succeeded", *edge.allow}
    return kernel.Dependency(step=edge.step, allow=tuple(state for state in _ENDINGS if state in allowed))


def approval_of(block: ApprovalBlock | None) -> kernel.Approval | None:
    if block is None:
        return None
    return kernel.Approval(
        prompt=block.prompt,
        roles=tuple(block.roles),
        quorum=block.quorum,
        excluded=tuple(block.excluded),
        deadline=block.deadline,
        on_deadline=kernel.OnDeadline(block.on_deadline),
        groups=tuple(block.groups) or msgspec.UNSET,
        approvers=tuple(block.approvers) or msgspec.UNSET,
        reject_on=msgspec.UNSET if block.reject_on == 1 else block.reject_on,
        facts=dict(sorted(block.facts.items())) or msgspec.UNSET,
        escalate=tuple(_level(level) for level in block.escalate) or msgspec.UNSET,
        remind=msgspec.UNSET if block.remind is None else block.remind,
        standing=msgspec.UNSET if block.standing == "both" else kernel.Standing(block.standing),
        covers=msgspec.UNSET if block.covers == "plan" else kernel.Covers(block.covers),
    )


def _level(block: LevelBlock) -> kernel.Level:
    return kernel.Level(
        roles=tuple(block.roles),
        groups=tuple(block.groups),
        approvers=tuple(block.approvers),
        deadline=block.deadline,
    )


def _duties(blocks: Sequence[DutyBlock]) -> Iterator[kernel.Duty]:
    for block in blocks:
        if block.distinct is not None:
            yield kernel.Distinct(gates=tuple(block.distinct))
        if block.four_eyes is not None:
            yield kernel.FourEyes(gates=tuple(block.four_eyes))
        if block.incompatible is not None:
            yield kernel.Incompatible(steps=tuple(block.incompatible))
        for step, role in (block.requires_role or {}).items():
            yield kernel.RequiresRole(step=step, role=role)


def policy_of(blocks: Sequence[PolicyRuleBlock]) -> tuple[kernel.PolicyRule, ...]:
    """The rules of a policy, of a definition or of a tenant."""
    return tuple(
        kernel.PolicyRule(
            name=rule.name,
            then=kernel.PolicyEffect(rule.then),
            when=rule.when,
            reason=rule.reason,
            workflows=tuple(rule.workflows),
            steps=tuple(rule.steps),
            approval=approval_of(rule.approval),
        )
        for rule in blocks
    )


def budget_of(block: BudgetBlock) -> kernel.Budget:
    """The limits of a budget, and what follows."""
    limits = {"usd": block.usd, "tokens": block.tokens, "attempts": block.attempts}
    return kernel.Budget(
        limits={name: float(limit) for name, limit in limits.items() if limit is not None},
        on_exceeded=kernel.OnExceeded(block.on_exceeded),
        approval=approval_of(block.approval),
    )


def _wait(block: WaitBlock | None) -> kernel.Wait | None:
    if block is None:
        return None
    unset = msgspec.UNSET
    return kernel.Wait(
        event=block.event,
        deadline=block.deadline,
        accepts=unset if block.if_ is None else block.if_,
        count=unset if block.count is None else block.count,
        enough=unset if block.until is None else block.until,
    )


def _sleep(block: SleepBlock) -> kernel.Wait:
    until = msgspec.UNSET if block.until is None else block.until
    if isinstance(block.for_, str):
        return kernel.Wait(event="sleep", sleeps=True, length=block.for_)
    return kernel.Wait(event="sleep", deadline=block.for_, sleeps=True, until=until)


def _rules(blocks: Sequence[RuleBlock], given: Any) -> tuple[kernel.Rule, ...]:
    """Rules as they are written. `given` is what a handler without `with` is called with."""
    return tuple(_rule(block, given) for block in blocks)


def _rule(block: RuleBlock, given: Any) -> kernel.Rule:
    unset = msgspec.UNSET
    name = unset if block.name is None else block.name
    timeout = unset if block.timeout is None else block.timeout
    if block.check is not None:
        return kernel.Rule(expression=block.check, message=block.message, name=name)
    executor = _executor(block)
    assert isinstance(executor, kernel.Handler | kernel.Command)
    inputs = block.with_ if "with_" in block.model_fields_set else given if block.uses is not None else unset
    return kernel.Rule(
        message=block.message,
        name=name,
        program=executor,
        inputs=inputs,
        timeout=timeout,
        silent=True if block.silent else unset,
    )
