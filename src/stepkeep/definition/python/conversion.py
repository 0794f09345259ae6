"""Converts a step's inputs to the types that a handler's parameters are annotated with, and refuses what does not fit.
What a call of a flow returned is converted to the return annotation in the same way.

Inputs are JSON: dates, enums, decimals, UUIDs, dataclasses, msgspec structs and pydantic models are made from it. A
parameter without an annotation, or with one that has no JSON form, receives its value unchanged. The worker calls it
where the handler runs, because models may run user code.

Remembers what is read of a function, for as long as the function lives. Pure but for that memory.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from inspect import Parameter, signature
from typing import Annotated, Any, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from stepkeep.definition.python.registry import read_signature
from stepkeep.edges.safe_text import exception_message, inert_line
from stepkeep.kernel.errors import InvalidInput

T = TypeVar("T")
Function = Callable[..., Any]


def for_each_function(read: Callable[[Function], T]) -> Callable[[Function], T]:
    """The same function with a memory; a callable that cannot be remembered is read each time.

    >>> for_each_function(lambda function: function.__name__)(print)
    'print'
    """
    known: WeakKeyDictionary[Function, T] = WeakKeyDictionary()

    def remembered(function: Function) -> T:
        with suppress(TypeError):
            if (found := known.get(function)) is not None:
                return found
        found = read(function)
        with suppress(TypeError):
            known[function] = found
        return found

    return remembered


Convert = Callable[[Any], Any]

AS_IT_IS = (Any, object, Parameter.empty)
MAX_PROBLEM = 500
"""Characters of a message about a value that does not fit."""

_FOREIGN = ("pydantic", "annotated_types")
"""Packages whose constraints in `Annotated[…]` pydantic alone understands."""


class _NoForm(Exception):
    """A type that nothing here can make from JSON."""


def fitted(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call without its context, converted.

    >>> from datetime import date
    >>> def book(day: date, rooms: int = 1) -> None: ...
    >>> fitted(book, (), {"day": "2026-03-01"})
    ((), {'day': datetime.date(2026, 3, 1)})
    >>> fitted(book, (), {"day": "soon"})
    Traceback (most recent call last):
    stepkeep.kernel.errors.InvalidInput: the parameter `day` does not fit: Invalid RFC3339 encoded date
    """
    known = converters_of(function)
    by_position = tuple(_converted(name, known, value) for name, value in zip(known, args, strict=False))
    by_name = {name: _converted(name, known, value) for name, value in kwargs.items()}
    return by_position + args[len(by_position) :], by_name


def has_types(function: Callable[..., Any]) -> bool:
    """Whether a parameter of this function is annotated with a type that values are converted to."""
    return any(convert is not None for convert in converters_of(function).values())


def converters_of(function: Callable[..., Any]) -> Mapping[str, Convert | None]:
    """What each parameter of a function but its context is made with, by its name and in order."""
    return _converters_of(function)


@for_each_function
def _converters_of(function: Callable[..., Any]) -> Mapping[str, Convert | None]:
    try:
        hints = typing.get_type_hints(function, include_extras=True)
        parameters = list(signature(function).parameters.values())
    except Exception:  # noqa: BLE001 - annotations are user code: names that do not exist, or no annotations at all
        return {}
    if read_signature(function).takes_context:
        parameters = parameters[1:]
    return {
        one.name: _converter(hints[one.name], nullable=one.default is None) if one.name in hints else None
        for one in parameters
        if one.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    }


def _converted(name: str, known: Mapping[str, Convert | None], value: Any) -> Any:
    convert = known.get(name)
    return value if convert is None else _made(f"the parameter `{name}`", convert, value)


def converter_of(annotation: Any, what: str) -> Convert | None:
    """What makes a value of this type from JSON, or raises InvalidInput; None where the value is given unchanged.

    >>> from datetime import date
    >>> converter_of(date, "the day")("2026-03-01")
    datetime.date(2026, 3, 1)
    """
    convert = _converter(annotation, nullable=False)
    return None if convert is None else partial(_made, what, convert)


def result_converter(function: Function, what: str) -> Convert | None:
    """The same for what this function returned, by its return annotation."""
    convert = _result_converter(function)
    return None if convert is None else partial(_made, what, convert)


@for_each_function
def _result_converter(function: Function) -> Convert | None:
    try:
        wanted = typing.get_type_hints(function, include_extras=True).get("return", Any)
    except Exception:  # noqa: BLE001 - annotations are user code: names that do not exist, or no annotations at all
        return None
    return None if wanted is type(None) else _converter(wanted, nullable=False)


def _made(what: str, convert: Convert, value: Any) -> Any:
    try:
        return convert(value)
    except _NoForm:
        return value
    except InvalidInput:
        raise
    except (TypeError, ValueError) as problem:
        said = inert_line(exception_message(problem) or type(problem).__name__, MAX_PROBLEM)
        raise InvalidInput(f"{what} does not fit: {said}") from None


def _converter(annotation: Any, *, nullable: bool) -> Convert | None:
    if annotation in AS_IT_IS:
        return None
    wanted = typing.Optional[annotation] if nullable else annotation  # noqa: UP045 - `|` does not take every type
    if _is_foreign(annotation):
        return _by_pydantic(wanted)
    try:
        msgspec.json.Decoder(wanted, dec_hook=_make)
    except (TypeError, RuntimeError):
        return _by_pydantic(wanted)
    if annotation is int:
        return lambda value: _convert(int(value) if _is_whole(value) else value, wanted)
    return lambda value: _convert(value, wanted)


def _convert(value: Any, wanted: Any) -> Any:
    return value if type(value) is wanted else msgspec.convert(value, wanted, dec_hook=_make)


def _is_whole(value: Any) -> bool:
    """Whether this is a number such as 3.0, as which arithmetic in expressions may give a whole number."""
    return type(value) is float and value.is_integer()


def _is_foreign(annotation: Any) -> bool:
    if typing.get_origin(annotation) is not Annotated:
        return False
    return any(type(extra).__module__.partition(".")[0] in _FOREIGN for extra in annotation.__metadata__)


def _make(kind: type[Any], value: Any) -> Any:
    """A pydantic model from JSON; nothing else is known by its type alone."""
    validate = getattr(kind, "model_validate", None)
    if validate is None:
        raise _NoForm
    try:
        return validate(value)
    except ValueError as problem:
        raise ValueError(_without_values(problem)) from None


def _by_pydantic(wanted: Any) -> Convert | None:
    """pydantic's converter for what msgspec does not know; None where pydantic does not know it either."""
    import pydantic

    try:
        adapter = pydantic.TypeAdapter(wanted)
    except (pydantic.PydanticUserError, pydantic.PydanticSchemaGenerationError, TypeError):
        return None

    def convert(value: Any) -> Any:
        try:
            return adapter.validate_python(value)
        except pydantic.ValidationError as problem:
            raise ValueError(_without_values(problem)) from None

    return convert


def _without_values(problem: ValueError) -> str:
    """pydantic's complaint without the values that it quotes, because they may be secrets."""
    pydantic = sys.modules.get("pydantic")
    if pydantic is None or not isinstance(problem, pydantic.ValidationError):
        return exception_message(problem) or type(problem).__name__
    told = problem.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}".removeprefix(": ") for one in told[:5])
