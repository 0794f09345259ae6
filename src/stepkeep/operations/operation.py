"""An operation is a coroutine method with a row: who may call it, under which address, with what, for which answer.

Every face is derived from the row and the signature: the check of arguments, the scopes, the blocking method, the HTTP
route with its document, the client, the tools for agents. An object whose `remote` is set has the same methods and
sends them to a service. It runs no operation by itself: `Access` admits, the method acts.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import cached_property, wraps
from typing import (
    Annotated,
    Any,
    ClassVar,
    Concatenate,
    Literal,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
    get_type_hints,
)

from msgspec import Meta

from stepkeep.kernel.errors import InvalidInput
from stepkeep.operations.access import OPERATIONS, Access, Scope
from stepkeep.operations.answers import says
from stepkeep.operations.typed import InPython, Read, Wrong, reader

P = ParamSpec("P")
T = TypeVar("T")
K = TypeVar("K", bound=type)
NOTHING = inspect.Parameter.empty

MOST_ON_A_PAGE = 200
"""How many of a list one answer over HTTP has. In Python a list has as many as are asked for."""
MOST_WRONG = 3
"""How many mistakes a message names; the others are in its list."""


Name = Annotated[str, Meta(min_length=1, max_length=255)]
Words = Annotated[str, Meta(max_length=4000)]
Actor = Annotated[Name | None, says("Another person than the owner of the key; needs the scope vouch.")]
RunId = Annotated[
    str, Meta(max_length=255, description="The id of a run.", examples=["019b7e2c-5a10-7c3e-9d7b-2f6f0a4c81d5"])
]
Limit = Annotated[int, Meta(ge=1, le=10_000, description="How many at most.")]
PageLimit = Annotated[int, Meta(ge=1, le=MOST_ON_A_PAGE, description="How many at most.")]


class Parameter(NamedTuple):
    """One argument: its names in Python and in requests, where a request has it, and what reads it.

    `place` is path, query, header or body; an argument without one needs the database itself.
    """

    name: str
    wire: str
    place: str
    annotation: Any
    read: Read
    is_checked: bool
    """Whether the annotation says all that Python may give."""
    default: Any
    is_rest: bool
    """Whether it has all further keyword arguments."""

    @property
    def is_required(self) -> bool:
        return self.default is NOTHING and not self.is_rest


class Row(NamedTuple):
    """What is said beside a method.

    `names`: arguments that requests call by another name. `headers`: arguments that are headers. `here`: arguments that
    need the database itself. `rest`: the field for all further keyword arguments. `pages`: the list of the answer that
    comes in pages; `page_key`: the field that names its items, if the method reads the whole list. `repeatable`: the
    request may be sent again after a lost answer. `ends_access`: what the service knows of keys is read anew. `asks`:
    what a request names besides its path must exist, or the request is not valid. `agents`: what it does, if agents get
    it as a tool.
    """

    scopes: frozenset[Scope]
    route: str
    id: str
    summary: str
    status: int = 200
    done: str = "Done"
    example: Mapping[str, Any] | None = None
    names: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    here: Sequence[str] = ()
    rest: str | None = None
    pages: str | None = None
    page_key: str | None = None
    repeatable: bool = True
    ends_access: bool = False
    asks: bool = False
    agents: Literal["reads", "changes", "ends"] | None = None


class Operation:
    """A method, its row, and what follows from its signature."""

    def __init__(self, group: str, tag: str, method: Callable[..., Any], row: Row) -> None:
        self.name = f"{group}.{method.__name__}" if group else method.__name__
        self.group, self.tag, self.function, self.row = group, tag, method, row
        self.scopes = row.scopes
        self.method, _, self.path = row.route.partition(" ")
        self.description = _prose(method.__doc__ or "")
        self.signature = inspect.signature(method)

    def __repr__(self) -> str:
        return f"<operation {self.name}>"

    @cached_property
    def hints(self) -> dict[str, Any]:
        return get_type_hints(self.function, include_extras=True)

    @property
    def answer(self) -> Any:
        """The type of the answer."""
        return self.hints["return"]

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """The arguments by their names in Python."""
        return {one.name: one for one in map(self._parameter, [*self.signature.parameters.values()][1:])}

    def _parameter(self, given: inspect.Parameter) -> Parameter:
        row, is_rest = self.row, given.kind is inspect.Parameter.VAR_KEYWORD
        wire = row.rest if is_rest and row.rest else row.names.get(given.name, given.name)
        annotation, is_checked = _wire_type(dict[str, Any] if is_rest else self.hints[given.name])
        if given.name in row.here or not self.path:
            place = ""
        elif f"{{{wire}}}" in self.path.replace(":path}", "}"):
            place = "path"
        elif given.name in row.headers:
            place, wire = "header", row.headers[given.name]
        else:
            place = "query" if self.method in ("GET", "DELETE") else "body"
        if given.name == "limit" and row.pages:
            annotation = PageLimit
        read = reader(annotation, from_text=place in ("path", "query", "header"))
        return Parameter(given.name, wire, place, annotation, read, is_checked, given.default, is_rest)

    @cached_property
    def _checks(self) -> dict[str, Read]:
        """What reads the arguments of a call in Python."""
        checked = {name: one for name, one in self.parameters.items() if one.is_checked and not one.is_rest}
        return {name: reader(_wire_type(self.hints[name])[0]) for name in checked}

    def checked(
        self, instance: object, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call as plain values. What the annotations do not allow is refused, all of it at once."""
        wrong: list[Wrong] = []
        bound = self.signature.bind(instance, *arguments, **named)
        for name, value in bound.arguments.items():
            if (read := self._checks.get(name)) is not None and value is not self.parameters[name].default:
                bound.arguments[name] = read(value, (self.parameters[name].wire,), wrong)
        if wrong:
            raise refusal(wrong)
        return bound.args, bound.kwargs

    def arguments(self, values: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The positional and the named arguments of a call with these values."""
        positional: list[Any] = []
        named = dict(values)
        for name, one in [*self.signature.parameters.items()][1:]:
            if one.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD or name not in named:
                break
            positional.append(named.pop(name))
        for rest in (one.name for one in self.parameters.values() if one.is_rest):
            named |= named.pop(rest, {})
        return positional, named

    async def called_on(self, engine: Any, values: dict[str, Any]) -> Any:
        """The answer to a call with these values, on an engine or a client."""
        positional, named = self.arguments(values)
        instance = getattr(engine, self.group) if self.group else engine
        return await getattr(instance, self.function.__name__)(*positional, **named)


class Remote(Protocol):
    """A service that has the operations."""

    async def perform(self, operation: Operation, given: Mapping[str, Any]) -> Any: ...


CATALOGUE: dict[str, Operation] = {}
"""Every operation that has a row, by name."""


class _Marked(Protocol):
    row: ClassVar[Row]


def operation(
    scopes: frozenset[Scope],
    route: str,
    id: str,  # noqa: A002 - the word of the document
    summary: str,
    **more: Any,
) -> Callable[
    [Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]], Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]
]:
    """The row of a method; the fields of `Row`."""

    def mark(
        method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
    ) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
        method.row = Row(scopes, route, id, summary, **more)  # type: ignore[attr-defined]
        return method

    return mark


def group(name: str, tag: str) -> Callable[[K], K]:
    """A class of operations: each asks `self.access` first, or is sent to `self.remote`. A public coroutine method
    without a row is a mistake."""

    def gather(kind: K) -> K:
        for method_name, method in list(vars(kind).items()):
            if method_name.startswith("_") or not inspect.iscoroutinefunction(method):
                continue
            if not hasattr(method, "row"):
                raise LookupError(f"{kind.__name__}.{method_name} has no row: say who may call it (@operation).")
            made = Operation(name, tag, method, method.row)
            CATALOGUE[made.name] = made
            OPERATIONS[made.name] = made.scopes
            setattr(kind, method_name, _operating(made))
        return kind

    return gather


def _operating(made: Operation) -> Callable[..., Awaitable[Any]]:
    function = made.function

    @wraps(function)
    async def call(self: Any, *arguments: Any, **named: Any) -> Any:
        if self.remote is not None:
            return await self.remote.perform(made, _given(made, self, arguments, named))

        async def work() -> Any:
            positional, others = made.checked(self, arguments, named)
            return await function(*positional, **others)

        access: Access = self.access
        return await access.admitted(made.name, arguments, named, work)

    call.operation = made  # type: ignore[attr-defined]
    return call


def _given(made: Operation, of: object, arguments: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that the caller gave, by their names in Python. What a service has no place for is refused."""
    given = dict([*made.signature.bind(of, *arguments, **named).arguments.items()][1:])
    for name in [name for name in given if not made.parameters[name].place]:
        if given.pop(name) != made.parameters[name].default:
            raise InvalidInput(f"`{name}` needs the database itself: a service has no place for it.")
    return given


def refusal(wrong: Sequence[Wrong], place: str = "") -> InvalidInput:
    """What is wrong with the arguments of an operation."""
    errors = [{"at": ".".join(map(str, (*([place] if place else []), *at))), "message": told} for at, told in wrong]
    found = InvalidInput("; ".join(f"{one['at']}: {one['message']}" for one in errors[:MOST_WRONG]))
    found.errors = errors  # type: ignore[attr-defined]
    return found


def _wire_type(annotation: Any) -> tuple[Any, bool]:
    """The type of an argument in JSON, and whether it is that of Python too."""
    for one in getattr(annotation, "__metadata__", ()):
        if isinstance(one, InPython):
            others = tuple(other for other in annotation.__metadata__ if other is not one)
            return (Annotated[(one.wire, *others)] if others else one.wire), False
    return annotation, True


def _prose(doc: str) -> str:
    """A docstring without its examples, as paragraphs."""
    text = re.split(r"\n\s*>{3} ", inspect.cleandoc(doc))[0].strip()
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text)


def routed() -> Iterator[Operation]:
    """Every operation that has an address."""
    return (one for one in CATALOGUE.values() if one.path)
