"""Writes the reference part of docs/python.md from the public names, so that the two cannot differ."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

import stepkeep as sk
from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking, Group
from stepkeep.engine.groups import Groups
from stepkeep.operations.operation import CATALOGUE

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
MARK = "<!-- what follows is written by tests/docs/python_reference.py -->\n"

SET_UP = """\
import stepkeep as sk

tokens = []


@sk.step
def greet(name: str) -> str:
    return f"Hello, {name}"


@sk.step
def charge(amount: int) -> dict:
    return {"receipt": f"r-{amount}"}


@sk.step
def pack(ctx: sk.Context) -> None:
    tokens.append(ctx.completion_token)


hello = sk.Workflow("hello")
hello.step("greet", greet)

order = sk.Workflow("order")
order.approval("sign-off", prompt="Charge it?")
order.step("charge", charge)

packing = sk.Workflow("packing")
packing.step("pack", pack, completion="manual")

delivery = sk.Workflow("delivery")
delivery.wait("arrival", "arrived")

engine = sk.open("sqlite:///examples.db")
"""

NAMES = {
    "Engines": ("open", "Engine", "AsyncEngine", "HostedWorker", "AsyncHostedWorker", "Result", "Started"),
    "Workflows": ("Workflow", "Expr", "Retry", "load_file", "flow", "on", "hook", "then", "secret", "output_of"),
    "Handlers": (
        "step",
        "agent",
        "lifespan",
        "Context",
        "Stream",
        "current",
        "durable",
        "wait_for",
        "retry_in",
        "fail",
        "StepError",
        "Registry",
    ),
    "Flows": ("FlowContext", "CallFailed", "NonDeterministic"),
    "Sinks": ("Sink", "OutgoingEvent", "SinkFailed", "Taken"),
    "Policies and payloads": (
        "CommandPolicy",
        "HttpPolicy",
        "Secrets",
        "PayloadStore",
        "DirectoryStore",
        "PayloadCodec",
    ),
    "Words": ("Category", "RunState", "StepState"),
}
"""The sections, but for the groups of the engine and the errors, which are found."""
OPTIONAL = re.compile(r"Optional\[((?:[^\[\]]|\[[^\[\]]*\])*)\]")
LIKE = {f"Async{name}": name for name in sk._homes() if f"Async{name}" in sk._homes()}
"""Classes whose methods are those of another one, with `await`."""


def reference() -> str:
    """One section per public name, with its signature, its words and its examples."""
    engines, *others = NAMES.items()
    errors = [
        name for name in sorted(sk._homes()) if _is_error(name) and not any(name in one for one in NAMES.values())
    ]
    sections = [engines, *_groups(), *others, ("Errors", tuple(errors))]
    listed = [name for _, names in sections for name in names]
    assert sorted(listed) == sorted(sk._homes()), "every public name is in one section"
    lines = (line for title, names in sections for line in _group(title, names))
    return "".join(f"{line}\n" for line in (*lines, *_answers()))


def _groups() -> Iterator[tuple[str, tuple[str, ...]]]:
    """The groups of methods that an engine has, in both forms."""
    for name, found in vars(Groups).items():
        if isinstance(found, Group):
            kind = found.fget.__annotations__["return"]
            yield f"`engine.{name}`", (kind, f"Async{kind}")


def _is_error(name: str) -> bool:
    found = getattr(sk, name)
    return inspect.isclass(found) and issubclass(found, Exception)


def _group(title: str, names: tuple[str, ...]) -> Iterator[str]:
    yield ""
    yield f"## {title}"
    for name in names:
        yield from _section(name, getattr(sk, name))


def _section(name: str, found: Any) -> Iterator[str]:
    yield ""
    yield f"### `stepkeep.{name}`"
    yield ""
    if not inspect.isclass(found):
        yield from _signature(f"stepkeep.{name}", found)
        yield from _words(found)
        return
    is_made_by_the_engine = issubclass(found, Blocking | AsyncGroup)
    if not is_made_by_the_engine and not issubclass(found, Exception) and not hasattr(found, "__members__"):
        yield from _signature(f"stepkeep.{name}", found)
    yield from _words(found, examples=name not in LIKE)
    if hasattr(found, "__members__"):
        yield ""
        yield ", ".join(f"`{member}`" for member in found)
        return
    if name in LIKE:
        yield ""
        yield f"Its methods are those of `stepkeep.{LIKE[name]}`, to be awaited."
        only = set(_members(found)) - set(_members(getattr(sk, LIKE[name])))
    else:
        only = set(_members(found))
    if issubclass(found, Exception):
        return
    for method, value in _members(found).items():
        if method in only and not isinstance(value, Group):
            yield ""
            yield f"#### `{name}.{method}`"
            yield ""
            if inspect.isfunction(value):
                yield from _signature(method, value)
            yield from _words(value)


def _members(found: type) -> dict[str, Any]:
    """Methods, properties and described attributes. Those of a Struct have their words behind the field."""
    fields = field_words(found) if issubclass(found, msgspec.Struct) else {}
    return {
        name: fields.get(name, value)
        for name, value in vars(found).items()
        if not name.startswith("_")
        and (name in fields or inspect.getdoc(value))
        and (inspect.isfunction(value) or isinstance(value, property) or inspect.ismemberdescriptor(value))
    }


def field_words(found: type) -> dict[str, property]:
    """The words that the source has behind each field of a class."""
    [tree] = ast.parse(textwrap.dedent(inspect.getsource(found))).body
    assert isinstance(tree, ast.ClassDef)
    words = {}
    for one, following in pairwise(tree.body):
        if isinstance(one, ast.AnnAssign) and isinstance(following, ast.Expr):
            assert isinstance(following.value, ast.Constant)
            words[ast.unparse(one.target)] = property(doc=str(following.value.value))
    return words


def _signature(name: str, found: Any) -> Iterator[str]:
    signature = _with_types(found)
    parameters = [one for one in signature.parameters.values() if one.name != "self"]
    shown = f"{name}{signature.replace(parameters=parameters)}"
    if len(shown) > 100 and parameters:
        shown = _broken(name, signature, parameters)
    yield "```text"
    yield shown
    yield "```"
    yield ""


class Shown(str):
    """A text that is shown without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def _with_types(found: Any) -> inspect.Signature:
    """The signature with types as they are written; of an operation, with the types that its names stand for."""
    signature = inspect.signature(found)
    hints = get_type_hints(found.operation.function) if hasattr(found, "operation") else {}

    def shown(name: str, given: Any) -> Any:
        if name not in hints:
            return Shown(given) if isinstance(given, str) else given
        return Shown(_plain(hints[name]))

    parameters = [one.replace(annotation=shown(one.name, one.annotation)) for one in signature.parameters.values()]
    return signature.replace(parameters=parameters, return_annotation=shown("return", signature.return_annotation))


def _plain(annotation: Any) -> str:
    """A type without the modules of its parts."""
    plain = re.sub(r"\b[\w.]+\.(?=\w)", "", inspect.formatannotation(annotation))
    return OPTIONAL.sub(r"\1 | None", plain)


def _answers() -> Iterator[str]:
    """What operations answer: the fields of each value."""
    kinds = {kind.__name__: kind for one in CATALOGUE.values() for kind in _structs(one.answer)}
    yield from ("", "## Answers", "", "Values with attributes; `answer.as_json()` gives plain values.")
    yield "A field with `?` may be UNSET: it is absent in JSON then."
    for name, kind in sorted(kinds.items()):
        hints = get_type_hints(kind)
        yield from ("", f"### `{name}`", "", inspect.getdoc(kind) or "", "", "```text")
        yield from (_field(field, hints[field]) for field in kind.__struct_fields__)
        yield "```"


def _field(name: str, annotation: Any) -> str:
    kinds = get_args(annotation)
    if msgspec.UnsetType not in kinds:
        return f"{name}: {_plain(annotation)}"
    there = ("None" if one is type(None) else _plain(one) for one in kinds if one is not msgspec.UnsetType)
    return f"{name}?: {' | '.join(there)}"


def _structs(annotation: Any) -> set[type[msgspec.Struct]]:
    """The structs in a type, and those in their fields."""
    found: set[type[msgspec.Struct]] = set()
    left = [annotation]
    while left:
        one = left.pop()
        if inspect.isclass(one) and issubclass(one, msgspec.Struct) and one not in found:
            found.add(one)
            left += get_type_hints(one).values()
        left += get_args(one)
    return found


def _broken(name: str, signature: inspect.Signature, parameters: list[inspect.Parameter]) -> str:
    lines: list[str] = []
    for number, one in enumerate(parameters):
        before = parameters[number - 1].kind if number else None
        if one.kind is one.KEYWORD_ONLY and before is not one.KEYWORD_ONLY:
            lines.append("*")
        lines.append(str(one))
        after = parameters[number + 1].kind if number + 1 < len(parameters) else None
        if one.kind is one.POSITIONAL_ONLY and after is not one.POSITIONAL_ONLY:
            lines.append("/")
    returned = "" if signature.return_annotation is signature.empty else f" -> {signature.return_annotation}"
    return f"{name}(\n" + "".join(f"    {line},\n" for line in lines) + f"){returned}"


def _words(found: Any, *, examples: bool = True) -> Iterator[str]:
    """A docstring: prose as it is, examples in blocks."""
    for paragraph in (inspect.getdoc(found) or "").split("\n\n"):
        if paragraph.startswith(">>> "):
            if not examples:
                continue
            yield "```pycon"
            yield paragraph
            yield "```"
        elif paragraph.startswith("    "):
            yield "```text"
            yield textwrap.dedent(paragraph)
            yield "```"
        else:
            yield paragraph
        yield ""
