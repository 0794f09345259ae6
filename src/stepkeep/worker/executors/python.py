"""Calls registered Python functions: the step's inputs become arguments by the function's signature.

It only makes the call; the pool decides whether that happens on a loop, in a thread or in a process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stepkeep.definition.python.conversion import fitted, has_types
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.kernel.definition import Handler
from stepkeep.kernel.plan import PlannedStep
from stepkeep.worker.attempts.classify import BindingError
from stepkeep.worker.attempts.executor import Call, Job, PoolKind
from stepkeep.worker.current import entered

POOLS = {"async": PoolKind.LOOP, "thread": PoolKind.THREAD, "process": PoolKind.PROCESS}


class PythonExecutor:
    """Runs `uses:` steps."""

    def __init__(self, registry: Registry, shared: Mapping[str, Any] | None = None) -> None:
        self._registry, self._shared = registry, shared

    def spec(self, planned: PlannedStep) -> HandlerSpec:
        executor = planned.executor
        assert isinstance(executor, Handler)
        found = self._registry.get(executor.name)
        if found is None:
            raise BindingError(
                f"this worker has no handler {executor.name}; load the module that registers it with --app"
            )
        return found

    def pool(self, planned: PlannedStep) -> PoolKind:
        return POOLS[self.spec(planned).runs_in]

    def call(self, job: Job) -> Call:
        spec = job.prepared.spec or self.spec(job.prepared.planned)
        signature = spec.signature
        context = job.make_context(self._shared) if signature.takes_context else None
        if not signature.names and not signature.takes_any and not job.prepared.checks_inputs:
            return Call(spec.function, () if context is None else (context,), {})
        inputs = job.prepared.render(job)
        check_fit(spec, inputs)
        return Call(spec.function, *signature.arguments(context, inputs))

    def run(self, job: Job) -> Any:
        function, args, kwargs = self.call(job)
        entered(lambda: job.make_context(self._shared))
        return make_call(function, args, kwargs, job.context if args and args[0] is job.context else None)


def make_call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], context: Any) -> Any:
    """Call a handler with arguments of the types that its parameters are annotated with."""
    if has_types(function):
        first = 0 if context is None else 1
        converted, kwargs = fitted(function, args[first:], kwargs)
        args = args[:first] + converted
    return function(*args, **kwargs)


def check_fit(spec: HandlerSpec, inputs: Any) -> None:
    """Refuse inputs that leave a required parameter empty, and name it."""
    signature = spec.signature
    if inputs is None or isinstance(inputs, (dict, Mapping)):
        given: Mapping[str, Any] = inputs or {}
        missing = signature.missing(given)
        if missing:
            has = ", ".join(map(str, given)) or "nothing"
            raise BindingError(
                f"handler {spec.name} needs {', '.join(missing)}, and its inputs have {has}. "
                "Add it to the step's inputs (`with` in YAML, `inputs=` in Python), or give the parameter a default."
            )
    elif not signature.names or len(signature.required) > 1:
        raise BindingError(
            f"handler {spec.name} takes {len(signature.names)} inputs by name, and was given a single value of "
            f"type {type(inputs).__name__}. Write the step's inputs as an object."
        )
