"""Maps a step's inputs to the arguments of a function, by its signature.

A first parameter named `ctx` or `context` (or annotated `Context`) receives the context. An object is passed by
keyword: the fields that are parameters, or all of them if the function takes `**anything`; other fields are dropped, so
a step without `with` can receive the whole run input. Any other input value goes to the one remaining parameter. The
worker calls it; it calls nothing itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter
from typing import Any

CONTEXT_NAMES = ("ctx", "context")
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, kw_only=True)
class Signature:
    """The parameters of a handler, without its context."""

    takes_context: bool
    names: tuple[str, ...]
    required: tuple[str, ...]
    takes_any: bool

    def unknown(self, names: Mapping[str, Any]) -> list[str]:
        """The inputs that no parameter would receive."""
        return [] if self.takes_any else [name for name in names if name not in self.names]

    def missing(self, names: Mapping[str, Any]) -> list[str]:
        """The parameters without a default that no input would fill."""
        return [name for name in self.required if name not in names]

    def arguments(self, context: Any, inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the call. Missing parameters are left to Python's own TypeError."""
        first = (context,) if self.takes_context else ()
        if inputs is None:
            return first, {}
        if not isinstance(inputs, Mapping):
            return (*first, inputs), {}
        chosen = inputs if self.takes_any else {name: inputs[name] for name in self.names if name in inputs}
        return first, dict(chosen)


def read_signature(function: Callable[..., Any]) -> Signature:
    """Read a function's parameters. If they cannot be read (some built-ins), it is assumed to accept anything."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return Signature(takes_context=False, names=(), required=(), takes_any=True)
    takes_context = bool(parameters) and _is_context(parameters[0])
    rest = parameters[1:] if takes_context else parameters
    named = [parameter for parameter in rest if parameter.kind in _BY_NAME]
    return Signature(
        takes_context=takes_context,
        names=tuple(parameter.name for parameter in named),
        required=tuple(parameter.name for parameter in named if parameter.default is Parameter.empty),
        takes_any=any(parameter.kind is Parameter.VAR_KEYWORD for parameter in rest),
    )


def _is_context(parameter: Parameter) -> bool:
    if parameter.kind not in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD):
        return False
    annotation = parameter.annotation
    said = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return parameter.name in CONTEXT_NAMES or said.rpartition(".")[2] == "Context"
