"""What a handler can return besides a plain value: wait for an event, add steps, retry later, fail.

`wait_for` and `then` are returned. `retry_in` and `fail` create errors that can be returned or raised. Nothing here
knows the database; `results` turns the answers into outcomes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from stepkeep.definition import arguments
from stepkeep.definition.bounds import DEADLINE, DELAY, MAX_GATHERED
from stepkeep.definition.durations import format_duration
from stepkeep.definition.python.retry import Duration, microseconds
from stepkeep.edges.safe_text import exception_message, exception_text, inert_line, plain_text, type_name
from stepkeep.kernel.errors import ExpressionError, InvalidInput, StepkeepError
from stepkeep.kernel.machine.states import Category, ErrorClass
from stepkeep.operations import validate

OnTimeout = Literal["handler", "fail"]
Emit = str | tuple[str, Any] | Mapping[str, Any]
"""An outbound event: its name, a (name, payload) pair, or `{"name": …, "payload": …}`."""


class StepError(StepkeepError):
    """A handler's failure, with the category that decides whether it is tried again.

    `error_class` says how another system failed: `rate_limit`, `5xx` or `transport`. Policies that name only some of
    them (`retryableErrors` of the action dialect) retry a failure without a class like any of its category.

    >>> raise StepError("the card was declined", category="conflict")
    Traceback (most recent call last):
    stepkeep.worker.answers.StepError: the card was declined
    """

    def __init__(
        self,
        error: str | BaseException,
        *,
        category: Category | str = Category.UNKNOWN,
        delay: int | None = None,
        final: bool = False,
        error_class: ErrorClass | str | None = None,
    ) -> None:
        super().__init__(_words(error))
        self.category = _category(category)
        self.error_class = _error_class(error_class)
        self.delay = _pause(delay)
        if type(final) is not bool:
            raise InvalidInput(f"StepError: final is True or False, not a value of type {type_name(final)}.")
        self.final = final

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are unpickled from their arguments alone; a child process would lose the category.
        said = exception_message(self) or type_name(self)
        named = None if self.error_class is None else self.error_class.value
        return _rebuild, (said, self.category.value, self.delay, self.final, named)


def _words(error: object) -> str:
    if (text := plain_text(error)) is not None:
        return text
    if isinstance(error, BaseException):
        return exception_text(error)
    raise InvalidInput(f"StepError: the error is a text or an exception, not a value of type {type_name(error)}.")


def _category(category: object) -> Category:
    if (name := plain_text(category)) is not None:
        if name in _CATEGORIES:
            return _CATEGORIES[name]
        raise InvalidInput(f"{inert_line(name, 100)!r} is no error category. Choose from {', '.join(_CATEGORIES)}.")
    raise InvalidInput(f"StepError: a category is a text, not a value of type {type_name(category)}.")


def _error_class(given: object) -> ErrorClass | None:
    if given is None:
        return None
    if (name := plain_text(given)) is not None:
        if name in _ERROR_CLASSES:
            return _ERROR_CLASSES[name]
        known = ", ".join(_ERROR_CLASSES)
        raise InvalidInput(f"{inert_line(name, 100)!r} is no error class. Choose from {known}.")
    raise InvalidInput(f"StepError: an error class is a text, not a value of type {type_name(given)}.")


def _pause(delay: object) -> int | None:
    if delay is None:
        return None
    if type(delay) is not int:
        raise InvalidInput(
            f"StepError: delay is a whole number of microseconds, not a value of type {type_name(delay)}. "
            'Write sk.retry_in("30s") for a pause in words.'
        )
    least, most = DELAY
    if not least <= delay <= most:
        raise InvalidInput(
            f"StepError: delay is out of bounds. Give {format_duration(least)} to {format_duration(most)}, "
            "in microseconds."
        )
    return delay


_CATEGORIES = {category.value: category for category in sorted(Category)}


_ERROR_CLASSES = {one.value: one for one in ErrorClass}


def _rebuild(error: str, category: str, delay: int | None, final: bool, error_class: str | None) -> StepError:
    return StepError(error, category=category, delay=delay, final=final, error_class=error_class)


class WaitFor(msgspec.Struct, frozen=True, kw_only=True):
    """Asks for another run of the handler when a message of this name arrives, or after `timeout` microseconds.

    `where`, `count` and `until` choose messages, like those of a `wait:` step.
    """

    event: str
    timeout: int | None = None
    emit: tuple[tuple[str, Any], ...] = ()
    takes_timeouts: bool = True
    where: str | None = None
    count: int | None = None
    until: str | None = None


def wait_for(
    event: str,
    *,
    timeout: Duration | None = None,
    emit: Iterable[Emit] = (),
    on_timeout: OnTimeout = "handler",
    where: str | None = None,
    count: int | None = None,
    until: str | None = None,
) -> WaitFor:
    """Give the worker back its slot and be run again when `event` arrives; `ctx.woken_by` then says what woke the step.

    When `timeout` passes first, the handler runs again too and is told so; with `on_timeout="fail"` the step fails
    instead. `emit` lists events for the outside world, sent only if the wait itself was recorded.

    `where`, `count` and `until` have the meaning of `wait:` steps. `where` is an expression over `message` and `input`:
    other messages stay in the inbox. With `count` the handler runs again after this many messages, with `until` when
    the expression over `messages` holds. `ctx.woken_by.payload` is then a list, also after a timeout.

    >>> wait_for("payment.settled", timeout="2d", emit=["payment.requested"]).event
    'payment.settled'
    >>> wait_for("vote", where="has(message.choice)", count=3).count
    3
    """
    arguments.choice("wait_for: on_timeout", on_timeout, ("handler", "fail"))
    if count is not None and until is not None:
        raise InvalidInput("wait_for: give either count or until.")
    return WaitFor(
        event=validate.key("wait_for: the name of the event", event),
        timeout=None if timeout is None else microseconds(timeout, what="wait_for: timeout", bounds=DEADLINE),
        emit=tuple(_emitted(each) for each in arguments.items("wait_for: emit", emit)),
        takes_timeouts=on_timeout == "handler",
        where=None if where is None else _expression("where", where, several=False),
        count=None if count is None else arguments.whole("wait_for: count", count, 1, MAX_GATHERED),
        until=None if until is None else _expression("until", until, several=True),
    )


def _expression(name: str, text: object, *, several: bool) -> str:
    """An expression over messages that can be evaluated; raises InvalidInput."""
    # Imported on first use: most handlers wait without an expression.
    from stepkeep.definition.expressions.compiler import compile_test

    if type(text) is not str:
        raise InvalidInput(f"wait_for: {name} is an expression, not a value of type {type_name(text)}.")
    try:
        compile_test(text, several)
    except ExpressionError as problem:
        raise InvalidInput(f"wait_for: {name}: {problem}") from None
    return text


class Then(msgspec.Struct, frozen=True, kw_only=True):
    """Adds steps to the run, and is the result of the handler that returns it."""

    steps: tuple[Any, ...]
    output: Any = None


def then(*steps: Mapping[str, Any], output: Any = None) -> Then:
    """Return this from a handler to add steps to its run. Its step must have `then`, or be one that was added.

    Each step is written as in a definition: `name`; one of `uses`, `agent`, `command`, `http`, `approval`, `wait` and
    `sleep`; and options such as `with`, `depends_on`, `retry`, `timeout`, `undo` and `on_failure: "skip"`. `uses` and
    `undo` also take decorated functions. Without any `depends_on`, the steps run one after the other. Texts are data;
    `output_of` reads the result of another step of the list. The step with `then` ends when all added steps have: its
    output is `{"output": …, "steps": {NAME: …}}`.

    >>> plan = then(
    ...     {"name": "search", "uses": "web.search", "with": {"query": "tea"}},
    ...     {"name": "ask", "approval": "Is that enough?"},
    ...     output={"goal": "tea"},
    ... )
    >>> [step["name"] for step in plan.steps]
    ['search', 'ask']
    """
    return Then(steps=steps, output=output)


def retry_in(delay: Duration, error: str | BaseException = "asked to be tried again later") -> StepError:
    """Another attempt after `delay`, within the step's attempts.

    >>> retry_in("30s", "the export is not ready yet").delay
    30000000
    """
    pause = microseconds(delay, what="retry_in: delay", bounds=DELAY)
    return StepError(error, category=Category.TRANSIENT, delay=pause)


def fail(error: str | BaseException, *, category: Category | str = Category.VALIDATION) -> StepError:
    """The end of this step, whatever attempts are left; `category` tells people (and policies) why.

    >>> fail("no such customer").final
    True
    """
    return StepError(error, category=category, final=True)


def _emitted(each: Emit) -> tuple[str, Any]:
    name, payload = _name_and_payload(each)
    return validate.key("the name of an event to emit", name), payload


def _name_and_payload(each: Any) -> tuple[Any, Any]:
    if isinstance(each, str):
        return each, None
    if isinstance(each, Mapping):
        if "name" not in each or set(each) - {"name", "payload"}:
            raise InvalidInput(f"an event to emit has `name` and `payload`, not {sorted(map(ascii, each))}.")
        return each["name"], each.get("payload")
    if not (isinstance(each, tuple | list) and len(each) == 2):
        said = "an event to emit is a name, a (name, payload) pair, or a mapping with `name` and `payload`"
        raise InvalidInput(f"{said}, not {type(each).__name__}.")
    return each[0], each[1]
