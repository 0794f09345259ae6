"""Whether the inputs that a definition writes down fit the parameters of a handler.

It considers names only, which no data can change: values are judged when they are known. Workers call it for stored
definitions, whose handlers may have changed since, and the command line before it works on a run.
"""

from __future__ import annotations

from typing import Any

from stepkeep.definition.expressions.template_text import OPENING, WHOLE_INPUT
from stepkeep.definition.python.registry import HandlerSpec
from stepkeep.kernel.definition import Definition


def misfit(spec: HandlerSpec, inputs: Any, definition: Definition) -> str | None:
    """What is wrong between a handler and the written inputs of a step; None if they fit or data decides.

    Only the native format refuses inputs that no parameter takes, so they are no misfit in the others.
    """
    signature = spec.signature
    if isinstance(inputs, dict) and not any(OPENING in name for name in inputs):
        given, unknown = tuple(inputs), signature.unknown(inputs) if definition.dialect == "native" else []
    elif inputs == WHOLE_INPUT and definition.input_fields is not None:
        given, unknown = definition.input_fields, []
    else:
        return None
    missing = signature.missing(dict.fromkeys(given))
    if not missing and not unknown:
        return None
    parts = [f"needs {', '.join(missing)}"] if missing else []
    parts += [f"has no parameter {', '.join(unknown)}"] if unknown else []
    return f"handler {spec.name} {' and '.join(parts)}; the stored inputs are {', '.join(given) or 'empty'}"
