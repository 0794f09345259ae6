"""Evaluates the rules of a step before or after its handler, and those of the run at its end.

A rule is an expression, a schema, a command or a handler. A rule that does not hold, or cannot be evaluated, fails the
step; the error names the rule and the values it saw. Expressions are user text, so they are kept off the worker's loop.
Programs run on the handlers' loop, one after the other; the first that fails ends the evaluation.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import copy_context
from typing import Any

import msgspec
from msgspec import UNSET

from stepkeep.definition.durations import format_duration
from stepkeep.definition.findings import kind_of, shown
from stepkeep.edges.redaction import hide_secrets
from stepkeep.edges.safe_text import exception_text, inert_line, is_a, plain_text, type_name
from stepkeep.edges.secret_values import KNOWN
from stepkeep.kernel.definition import SECOND, Command
from stepkeep.kernel.errors import ExpressionError, StepkeepError
from stepkeep.kernel.machine.outcomes import Failed, Outcome, RulesFailed, RulesPassed
from stepkeep.kernel.plan import PlannedStep
from stepkeep.worker.answers import StepError
from stepkeep.worker.attempts.classify import BindingError
from stepkeep.worker.attempts.executor import Job, PoolKind
from stepkeep.worker.attempts.payloads import storable_text
from stepkeep.worker.attempts.rule_checks import Check
from stepkeep.worker.executors.command import CommandExecutor
from stepkeep.worker.executors.python import check_fit, make_call

MOST_VALUES = 5
"""How many of the values that it saw a failed rule names."""

LONGEST_MESSAGE = 1000
"""How many characters of a handler's or a program's own words are kept."""

_decode = msgspec.json.Decoder().decode


class RulesExecutor:
    """Evaluates rules: before a handler, of steps in `validating`, and in the final check."""

    spec = None

    def __init__(self, commands: CommandExecutor, shared: Mapping[str, Any] | None = None) -> None:
        self._commands, self._shared = commands, shared

    def pool(self, planned: PlannedStep) -> PoolKind:
        return PoolKind.RULES

    def run(self, job: Job) -> Any:
        """The verdict; an awaitable of it where a rule is a program."""
        if any(check.program is not None for check in job.prepared.rules):
            return self._judge(job)
        return _verdict(_broken(job), job)

    async def _judge(self, job: Job) -> Outcome:
        broken = await _in_thread(lambda: _broken(job))
        if not broken:
            for check in job.prepared.rules:
                if check.program is not None and (said := await self._program(check, job)) is not None:
                    broken = [said]
                    break
        return _verdict(broken, job)

    async def _program(self, check: Check, job: Job) -> str | None:
        """Why a program does not hold; None if it does."""
        limit = None if check.rule.timeout is UNSET else check.rule.timeout
        wait = asyncio.timeout(None if limit is None else limit / SECOND)
        assert check.program is not None
        assert check.inputs is not None
        values = ""
        try:
            async with wait:
                inputs = check.inputs.render(job)
                if check.spec is not None:
                    values = _values(_named(inputs), job)
                    said = await self._call(check, inputs, job)
                else:
                    command = check.program.render(job)
                    assert isinstance(command, Command)
                    said = _of_command(await self._commands.execute(job, command, inputs), check)
        except TimeoutError:
            said = "it timed out" if not wait.expired() else f"it ran past its timeout of {format_duration(limit or 0)}"
        except asyncio.CancelledError:
            raise
        except (StepError, StepkeepError, BindingError) as problem:
            said = str(problem)
        except Exception as problem:  # noqa: BLE001 - whatever a rule raises is why it does not hold
            said = exception_text(problem)
        return None if said is None else _worded(check, said, values)

    async def _call(self, check: Check, inputs: Any, job: Job) -> str | None:
        spec = check.spec
        assert spec is not None
        context = job.make_context(self._shared) if spec.signature.takes_context else None
        check_fit(spec, inputs)
        args, kwargs = spec.signature.arguments(context, inputs)

        def call() -> Any:
            return make_call(spec.function, args, kwargs, context)

        answer = await (call() if spec.runs_in == "async" else _in_thread(call))
        if answer is True:
            return None
        if answer is False:
            return "it returned False"
        if is_a(answer, StepError):
            return str(answer)
        if (text := plain_text(answer)) is not None:
            return text or "it returned an empty text"
        return f"it returned {type_name(answer)}; a rule returns True, False, or a text that says what is wrong"


def _of_command(result: Any, check: Check) -> str | None:
    if isinstance(result, Failed):
        return result.error
    if check.rule.silent is True and (printed := result["stdout"].strip()):
        return f"it printed: {printed}"
    return None


def _broken(job: Job) -> list[str]:
    """Every expression and schema that does not hold."""
    broken, view = [], job.view()
    for check in job.prepared.rules:
        rule = check.rule
        if check.shape is not None:
            if wrong := _misfits(check, job):
                broken.append(_worded(check, f"the output of the run does not fit its schema: {'; '.join(wrong)}"))
        elif check.condition is not None:
            try:
                if not check.condition.holds(view):
                    values = _values(check.condition.seen(view), job)
                    broken.append(_worded(check, f"the rule does not hold: {rule.expression}", values))
            except ExpressionError as problem:
                broken.append(_worded(check, f"the rule cannot be evaluated: {rule.expression}: {problem}", told=True))
    return broken


def _misfits(check: Check, job: Job) -> list[str]:
    assert check.shape is not None
    try:
        value = _last_outputs(job) if check.shaped is None else check.shaped.render(job)
    except ExpressionError as problem:
        return [str(problem)]
    return check.shape.complaints(value)


def _last_outputs(job: Job) -> Any:
    """The output of a run that declares none: that of its last step, or of each of its last steps by name."""
    plan = job.claim.plan
    names = [plan.steps[no].name for no in plan.results]
    plain = {name: None if (output := job.loaded.outputs.get(name)) is None else _decode(output) for name in names}
    return next(iter(plain.values())) if len(plain) == 1 else plain


def _verdict(broken: list[str], job: Job) -> Outcome:
    cost = None if job.context is None else job.context.spent
    return RulesFailed(error=storable_text("; ".join(broken)), cost=cost) if broken else RulesPassed(cost=cost)


def _worded(check: Check, said: str, values: str = "", *, told: bool = False) -> str:
    """The error of a rule: its name, its message, and what was found."""
    rule, title = check.rule, check.title
    if rule.message and check.program is not None:
        text = f"{rule.message}: {_short(said)}"
    else:
        text = rule.message if rule.message and not told else _short(said)
    return f"{title}: {text}{values}" if title else f"{text}{values}"


def _short(said: str) -> str:
    return KNOWN.hide(said.strip())[:LONGEST_MESSAGE]


def _values(seen: list[tuple[str, Any]], job: Job) -> str:
    """The values that a rule saw, in brackets: a few, each short, and kinds alone where payloads are sealed."""
    told = []
    for path, value in seen[:MOST_VALUES]:
        name = path.rpartition(".")[2]
        hidden = hide_secrets({name: value})
        assert isinstance(hidden, dict)
        said = kind_of(value) if job.loaded.opened is not None else KNOWN.hide(shown(hidden[name]))
        told.append(f"{inert_line(path, 100)} = {inert_line(said, 100)}")
    more = ", …" if len(seen) > MOST_VALUES else ""
    return f" ({', '.join(told)}{more})" if told else ""


def _named(inputs: Any) -> list[tuple[str, Any]]:
    return list(inputs.items()) if isinstance(inputs, dict) else []


async def _in_thread(function: Callable[[], Any]) -> Any:
    """Call a function in a thread of its own. A thread cannot be ended, and an abandoned one ends with the process."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def settle(found: tuple[Any, BaseException | None]) -> None:
        if not done.done():
            done.set_result(found)

    def live() -> None:
        try:
            found: tuple[Any, BaseException | None] = (function(), None)
        except BaseException as problem:  # noqa: BLE001 - raised again where the rule is awaited
            found = (None, problem)
        # The loop may have ended before a thread that was abandoned.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, found)

    threading.Thread(target=copy_context().run, args=(live,), name="stepkeep-rule", daemon=True).start()
    answer, problem = await done
    if problem is not None:
        raise problem
    return answer
