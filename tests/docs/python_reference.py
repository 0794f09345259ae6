"""Writes the reference part of docs/python.md from the public names, so that the two cannot differ."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

import stepkeep as sk
from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking

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

GROUPS = {
    "Engines": ("open", "Engine", "AsyncEngine", "HostedWorker", "AsyncHostedWorker", "Result", "Started"),
    "People": ("Tenants", "Users", "Keys", "Audit", "AsyncTenants", "AsyncUsers", "AsyncKeys", "AsyncAudit"),
    "The outside world": ("Network", "AsyncNetwork", "Hooks", "AsyncHooks"),
    "Messages by key": ("Mailbox", "AsyncMailbox"),
    "Triggers": ("Triggers", "AsyncTriggers"),
    "Going on with finished runs": ("Continuations", "AsyncContinuations"),
    "Versions": ("Versions", "AsyncVersions"),
    "Workflows": ("Workflow", "Expr", "Retry", "load_file"),
    "Handlers": ("step", "agent", "lifespan", "Context", "wait_for", "retry_in", "fail", "StepError", "Registry"),
    "Policies": ("CommandPolicy", "HttpPolicy"),
    "Words": ("Category", "RunState", "StepState"),
}
LIKE = {f"Async{name}": name for name in sk._homes() if f"Async{name}" in sk._homes()}
"""Classes whose methods are those of another one, with `await`."""


def reference() -> str:
    """One section per public name, with its signature, its words and its examples."""
    public = [name for name in sorted(sk._homes()) if name not in _grouped()]
    groups = {**GROUPS, "Errors": tuple(public)}
    return "".join(f"{line}\n" for title, names in groups.items() for line in _group(title, names))


def _grouped() -> set[str]:
    return {name for names in GROUPS.values() for name in names}


def _group(title: str, names: tuple[str, ...]) -> Iterator[str]:
    yield ""
    yield f"## {title}"
    for name in names:
        if name in sk._homes():
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
        if method in only:
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
    signature = inspect.signature(found)
    parameters = [one for one in signature.parameters.values() if one.name != "self"]
    flat = str(signature.replace(parameters=parameters)).replace("'", "")
    shown = f"{name}{flat}"
    if len(shown) > 100 and parameters:
        shown = _broken(name, signature, parameters)
    yield "```text"
    yield shown
    yield "```"
    yield ""


def _broken(name: str, signature: inspect.Signature, parameters: list[inspect.Parameter]) -> str:
    lines: list[str] = []
    for number, one in enumerate(parameters):
        before = parameters[number - 1].kind if number else None
        if one.kind is one.KEYWORD_ONLY and before is not one.KEYWORD_ONLY:
            lines.append("*")
        lines.append(str(one).replace("'", ""))
        after = parameters[number + 1].kind if number + 1 < len(parameters) else None
        if one.kind is one.POSITIONAL_ONLY and after is not one.POSITIONAL_ONLY:
            lines.append("/")
    returned = "" if signature.return_annotation is signature.empty else f" -> {signature.return_annotation}"
    return f"{name}(\n" + "".join(f"    {line},\n" for line in lines) + f"){returned}".replace("'", "")


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
