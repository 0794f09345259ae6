"""An operation is a coroutine method with a row: who may call it, under which address, with what, for which answer.

Every face is derived from the row and the signature: the check of arguments, the scopes, the blocking method, the HTTP
route with its document, the client, the tools for agents. An object whose `remote` is set has the same methods and
sends them to a service. It runs no operation by itself: `Access` admits, the method acts.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property, wraps
from typing import (
    Annotated,
    Any,
    Concatenate,
    Literal,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
    get_args,
    get_type_hints,
)

from msgspec import Meta

from stepkeep.kernel.errors import InvalidInput
from stepkeep.operations.access import LOOKS, OPERATIONS, Access, Scope
from stepkeep.operations.answers import says
from stepkeep.operations.typed import InPython, Read, Wrong, reader

P = ParamSpec("P")
T = TypeVar("T")
K = TypeVar("K", bound=type)
NOTHING = inspect.Parameter.empty

MOST_LISTED = 10_000
"""How many of a list one answer has."""
MOST_ON_A_PAGE = 200
"""How many of a list one answer over HTTP has. A client gathers the pages."""
MOST_WRONG = 3
"""How many mistakes a message names; the others are in its list."""


Name = Annotated[str, Meta(min_length=1, max_length=255)]
Words = Annotated[str, Meta(max_length=4000)]
Actor = Annotated[Name | None, says("Another person than the owner of the key; needs the scope vouch.")]
RUN_ID = "019b7e2c-5a10-7c3e-9d7b-2f6f0a4c81d5"
"""The run of the examples."""
RunId = Annotated[
    str, InPython(Annotated[str, Meta(max_length=255, description="The id of a run.", examples=[RUN_ID])])
]
"""A text that is no id of a run names none: it is not found."""
IdempotencyKey = Annotated[
    Annotated[str, Meta(max_length=255)] | None,
    says("The same key with the same body does it once: 200 instead of 201, and the first answer's run."),
]
Limit = Annotated[int, Meta(ge=1, le=MOST_LISTED, description="How many at most.")]
PageLimit = Annotated[int, Meta(ge=1, le=MOST_ON_A_PAGE, description="How many at most.")]
Cursor = Annotated[Annotated[str, Meta(max_length=255)] | None, says("`next` of the page before.")]
Time = Annotated[datetime, Meta(tz=True, description="A time with a zone.")]


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
        return self.default is NOTHING


class Row(NamedTuple):
    """What is said beside a method.

    `tag`: another part of the document than that of the group. `names`: arguments that requests call by another name;
    requests leave out an underscore at the end.
    `or_key`: the argument that the header Idempotency-Key stands for where a body has none. `here`: arguments that need
    the database itself. `rest`: the field for all further keyword arguments. `pages`: the list of the answer that comes
    in pages of `page_size`. Either the method takes `after` or `cursor` with a `limit`, and answers with `next`; or it
    reads the whole list, and `page_key` is the field that names an item (or fields, with @ between). `repeatable`: the
    request may be sent again after a lost answer. `ends_access`: what the service knows of keys is read anew. `asks`:
    what a request names besides its path must exist, or the request is not valid. `creates`: the address of what it
    creates, with the status 201. Its answer has `created`, which is false where the `idempotency_key` had created it
    before: the status is 200 then. `agents`: what it does, if agents get it as a tool. `by_hand`: the service has a
    route of its own there. `kept`: fields of the first page that hold for all. `words`: the argument that names a
    dialect, in whose words the answer is a plain mapping. `answer`: its type, if the annotation has several.
    `elsewhere`: rows of other addresses.
    """

    scopes: frozenset[Scope]
    route: str = ""
    id: str = ""
    summary: str = ""
    status: int = 200
    done: str = "Done"
    tag: str | None = None
    example: Mapping[str, Any] | None = None
    names: Mapping[str, str] = {}
    or_key: str | None = None
    here: Sequence[str] = ()
    rest: str | None = None
    pages: str | None = None
    page_size: int = 50
    page_key: str | None = None
    repeatable: bool = True
    ends_access: bool = False
    asks: bool = False
    creates: str | None = None
    agents: Literal["reads", "changes", "ends"] | None = None
    by_hand: bool = False
    kept: Sequence[str] = ()
    words: str | None = None
    answer: Any = None
    elsewhere: Sequence[Row] = ()


def make_row(scopes: frozenset[Scope], route: str, id: str, summary: str, more: Mapping[str, Any]) -> Row:  # noqa: A002
    """A row, with what follows from the rest of it."""
    known: dict[str, Any] = {**({"status": 201} if "creates" in more else {}), **more}
    found = Row(scopes, route, id, summary, **known)
    return found._replace(done="Created") if found.status == 201 and "done" not in more else found


class Operation:
    """A method, its row, and what follows from its signature."""

    def __init__(self, group: str, tag: str, method: Callable[..., Any], row: Row) -> None:
        self.name = f"{group}.{method.__name__}" if group else method.__name__
        self.group, self.tag, self.function, self.row = group, row.tag or tag, method, row
        self.scopes = row.scopes
        self.elsewhere = [Operation(group, tag, method, one) for one in row.elsewhere]
        self.method, _, self.path = row.route.partition(" ")

    def __repr__(self) -> str:
        return f"<operation {self.name}>"

    @property
    def description(self) -> str:
        """The words of the method, without its examples."""
        return _prose(self.function.__doc__ or "")

    @cached_property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.function)

    @cached_property
    def hints(self) -> Mapping[str, Any]:
        return get_type_hints(self.function, include_extras=True)

    @property
    def answer(self) -> Any:
        """The type of the answer."""
        return self.row.answer or self.hints["return"]

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """The arguments by their names in Python."""
        return {one.name: one for one in map(self._parameter, [*self.signature.parameters.values()][1:])}

    def _parameter(self, given: inspect.Parameter) -> Parameter:
        row, is_rest = self.row, given.kind is inspect.Parameter.VAR_KEYWORD
        wire = row.rest if is_rest and row.rest else row.names.get(given.name, given.name.rstrip("_"))
        annotation, is_checked = _wire_type(dict[str, Any] if is_rest else self.hints[given.name])
        if given.name in row.here or not self.path:
            place = ""
        elif f"{{{wire}}}" in self.path.replace(":path}", "}"):
            place = "path"
        elif given.name == "idempotency_key":
            place, wire = "header", "Idempotency-Key"
        else:
            place = "query" if self.method in ("GET", "DELETE") else "body"
        default = given.default
        if given.name == "limit" and row.pages:
            annotation, default = PageLimit, row.page_size
        read = reader(annotation, from_text=place in ("path", "query", "header"))
        if place == "query" and default is NOTHING and _takes_none(annotation):
            default = None
        return Parameter(given.name, wire, place, annotation, read, is_checked, default, is_rest)

    @cached_property
    def _checks(self) -> dict[str, Read]:
        """What reads the arguments of a call in Python."""
        checked = {name: one for name, one in self.parameters.items() if one.is_checked and not one.is_rest}
        return {name: reader(self.accepts(name)) for name in checked}

    def accepts(self, name: str) -> Any:
        """The type of an argument in JSON, as Python takes it: without the bounds of pages."""
        return _wire_type(self.hints[name])[0]

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

    def arguments(self, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The positional and the named arguments of a call with these values."""
        positional: list[Any] = []
        named = dict(values)
        for name, one in [*self.signature.parameters.items()][1:]:
            if one.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD or name not in named:
                break
            positional.append(named.pop(name))
        for rest in (one for one in self.parameters.values() if one.is_rest and one.name in named):
            more = named.pop(rest.name)
            if taken := sorted(more.keys() & ({"self"} | self.parameters.keys())):
                said = f"Value error, {taken[0]} is not part of the {rest.wire}: it stands beside it"
                raise refusal([Wrong((rest.wire,), said)])
            named |= more
        return positional, named

    async def called_on(self, engine: Any, values: Mapping[str, Any], *, is_read: bool = False) -> Any:
        """The answer to a call with these values, on an engine or a client. `is_read`: they were read as the row says,
        for an engine, and are not read again."""
        positional, named = self.arguments(values)
        instance = getattr(engine, self.group) if self.group else engine
        if is_read:
            access: Access = instance.access
            work = lambda: self.function(instance, *positional, **named)  # noqa: E731
            return await access.admitted(self.name, positional, named, work, is_admitted=engine.admitted == self.name)
        return await getattr(instance, self.function.__name__)(*positional, **named)


class Remote(Protocol):
    """A service that has the operations."""

    async def perform(self, operation: Operation, given: Mapping[str, Any]) -> Any: ...


CATALOGUE: dict[str, Operation] = {}
"""Every operation that has a row, by name."""


def operation(
    scopes: frozenset[Scope],
    route: str = "",
    id: str = "",  # noqa: A002 - the word of the document
    summary: str = "",
    **more: Any,
) -> Callable[
    [Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]], Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]
]:
    """The row of a method; the fields of `Row`. Without a route, it needs the database itself."""

    def mark(
        method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
    ) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
        method.row = make_row(scopes, route, id, summary, more)  # type: ignore[attr-defined]
        return method

    return mark


def group(name: str, tag: str) -> Callable[[K], K]:
    """A class of operations: each asks `self.access` first, or is sent to `self.remote`. A public coroutine method
    without a row is a mistake, but for a part of the engine itself, which has no name: `guarded` looks after those."""

    def gather(kind: K) -> K:
        for method_name, method in list(vars(kind).items()):
            if method_name.startswith("_") or not inspect.iscoroutinefunction(method):
                continue
            if not hasattr(method, "row"):
                if not name:
                    continue
                raise LookupError(f"{kind.__name__}.{method_name} has no row: say who may call it (@operation).")
            made = Operation(name, tag, method, method.row)
            CATALOGUE[made.name] = made
            OPERATIONS[made.name] = made.scopes
            if made.method == "GET":
                LOOKS.add(made.name)
            setattr(kind, method_name, _operating(made))
        return kind

    return gather


def _operating(made: Operation) -> Callable[..., Awaitable[Any]]:
    function = made.function

    @wraps(function)
    async def call(self: Any, *arguments: Any, **named: Any) -> Any:
        if self.remote is not None:
            return await self.remote.perform(*_addressed(made, self, arguments, named))

        async def work() -> Any:
            positional, others = made.checked(self, arguments, named)
            return await function(*positional, **others)

        access: Access = self.access
        return await access.admitted(made.name, arguments, named, work, is_admitted=self.admitted == made.name)

    call.operation, call.asks = made, made.name  # type: ignore[attr-defined]
    return call


def needs_database(name: str) -> InvalidInput:
    """The refusal of what a service has no address for."""
    return InvalidInput(f"`{name}` needs the database itself: open the engine with its URL.")


def _addressed(
    made: Operation, of: object, arguments: Sequence[Any], named: Mapping[str, Any]
) -> tuple[Operation, dict[str, Any]]:
    """The row whose address has a place for what the caller gave, and the arguments by their names in Python. What a
    service has no place for is refused."""
    if not made.path:
        raise needs_database(made.name)
    given = dict([*made.signature.bind(of, *arguments, **named).arguments.items()][1:])
    meant = {name: value for name, value in given.items() if value != made.parameters[name].default}
    fit = (one for one in (made, *made.elsewhere) if all(one.parameters[name].place for name in meant))
    if (found := next(fit, None)) is None:
        name = next(name for name in meant if not made.parameters[name].place)
        raise InvalidInput(f"`{name}` needs the database itself: a service has no place for it.")
    return found, {name: value for name, value in given.items() if found.parameters[name].place}


def refusal(wrong: Sequence[Wrong], place: str = "") -> InvalidInput:
    """What is wrong with the arguments of an operation."""
    errors = [{"at": ".".join(map(str, (*([place] if place else []), *at))), "message": told} for at, told in wrong]
    found = InvalidInput("; ".join(f"{one['at']}: {one['message']}" for one in errors[:MOST_WRONG]))
    found.errors = errors  # type: ignore[attr-defined]
    return found


def _takes_none(annotation: Any) -> bool:
    """Whether an argument may be None: in an address, it is left out then."""
    return type(None) in get_args(get_args(annotation)[0] if hasattr(annotation, "__metadata__") else annotation)


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


def addressed() -> Iterator[Operation]:
    """Every operation that has an address, once for each of them."""
    return (one for made in CATALOGUE.values() for one in (made, *made.elsewhere) if one.path)


def routed() -> Iterator[Operation]:
    """The same without those whose route is written by hand."""
    return (one for one in addressed() if not one.row.by_hand)
