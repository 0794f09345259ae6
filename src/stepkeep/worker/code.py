"""Which code a handler is: the digest of its source, its module, and the version of the package that has it.

It is computed once for each function of a process, and published with the offer of the worker, so that an attempt costs
nothing more. Flows have a digest of their module besides: other code may fit a run that this code does not. It reads
source files and runs no user code. `loop` calls it, and the executor of flows.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from importlib import metadata
from types import CodeType
from typing import Any

from stepkeep.definition.python.conversion import for_each_function
from stepkeep.definition.python.registry import Registry
from stepkeep.operations.remote.services import Code

DIGITS = 16
"""How many hexadecimal digits of a digest are kept."""


@for_each_function
def code_of(function: Callable[..., Any]) -> Code:
    """The code of a handler. A function without a source file has the digest of its byte code."""
    plain = inspect.unwrap(function)
    try:
        text = inspect.getsource(plain).encode()
    except (OSError, TypeError):
        compiled = getattr(plain, "__code__", None)
        text = b"" if compiled is None else repr(_parts(compiled)).encode()
    module = getattr(plain, "__module__", None) or ""
    digest = hashlib.sha256(text).hexdigest()[:DIGITS] if text else ""
    return Code(digest=digest, module=module, version=_version(module.partition(".")[0]))


@for_each_function
def build_of(function: Callable[..., Any]) -> str:
    """A digest of the module that has a function, by which a worker with other code for it is recognised.

    It covers the helpers beside the function. A function without a source file has the digest of its own code.
    """
    plain = inspect.unwrap(function)
    found = code_of(function).digest
    with suppress(OSError, TypeError):
        module = inspect.getmodule(plain)
        text = "" if module is None else inspect.getsource(module)
        return hashlib.sha256(f"{found}\n{text}".encode()).hexdigest()[:DIGITS]
    return found


def flow_builds(registry: Registry) -> dict[str, dict[int, str]]:
    """A digest of the code of each registered flow, by name and version. A handler that could be a flow, and has no
    version, is version 0."""
    found = {
        name: {version: build_of(one.function) for version, one in versions.items()}
        for name, versions in registry.flows.items()
    }
    for spec in registry:
        if spec.kind == "python" and spec.version is None and spec.runs_in == "async" and spec.signature.takes_context:
            found[spec.name] = {0: build_of(spec.function)}
    return found


def _parts(compiled: CodeType) -> tuple[Any, ...]:
    """What two compilations of the same source have in common, whatever file they come from."""
    constants = tuple(_parts(one) if isinstance(one, CodeType) else one for one in compiled.co_consts)
    return compiled.co_name, compiled.co_code.hex(), constants, compiled.co_names


@lru_cache(maxsize=256)
def _version(package: str) -> str:
    try:
        return metadata.version(package) if package else ""
    except (metadata.PackageNotFoundError, ValueError):
        return ""
