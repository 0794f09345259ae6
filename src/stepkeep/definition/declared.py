"""What decorators say about handlers, as data that travels with a definition to a process without the code.

`declare` writes it and `declared_registry` reads it: a service then builds the same definition as a program with the
handlers. It imports no user code. The client calls the first, the service the second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from stepkeep.definition import bounds
from stepkeep.definition.build import merged_retry
from stepkeep.definition.durations import format_duration
from stepkeep.definition.registry import HandlerSpec, Kind, Registry
from stepkeep.definition.retry import NATIVE_RETRY, written_retry
from stepkeep.definition.validators import Word, given, within
from stepkeep.definition.written import Block, HandlerName, QueueName, RetryGiven
from stepkeep.errors import InvalidInput
from stepkeep.kernel import definition as kernel

EffectGiven = Annotated[
    Literal["read", "write", "irreversible"] | None, given(Literal["read", "write", "irreversible"])
]


class DeclaredHandler(Block):
    """What a decorator says about one handler; an empty one says nothing."""

    kind: Kind = "python"
    retry: RetryGiven = None
    timeout: Annotated[int | None, within(bounds.STEP_TIMEOUT)] = None
    undo: Annotated[HandlerName | None, given(HandlerName)] = None
    effect: EffectGiven = None
    transactional: bool = False
    capabilities: list[Word] = Field(default=[])
    queue: QueueName = ""


Handlers = Annotated[dict[HandlerName, DeclaredHandler], Field(max_length=10_000)]
_handlers: TypeAdapter[dict[str, DeclaredHandler]] = TypeAdapter(Handlers)


def declare(registry: Registry, text: str, elsewhere: Iterable[str] = ()) -> dict[str, dict[str, Any]]:
    """What the decorators say about the handlers that a definition's text names, and about their undos.

    `elsewhere` are handlers that only workers have: nothing is known of their decorators.
    """
    named = [spec for spec in registry if spec.name in text]
    found: dict[str, dict[str, Any]] = {name: {} for name in elsewhere if registry.get(name) is None}
    while named:
        spec = named.pop()
        if spec.name not in found:
            found[spec.name] = dict(_said(spec))
            undo = None if spec.undo is None else registry.get(spec.undo)
            named += [] if undo is None else [undo]
    return dict(sorted(found.items()))


def _said(spec: HandlerSpec) -> Iterator[tuple[str, Any]]:
    if spec.kind != "python":
        yield "kind", spec.kind
    if spec.retry is not None:
        yield "retry", written_retry(spec.retry)
    if spec.timeout is not None:
        yield "timeout", format_duration(spec.timeout)
    for name in ("undo", "effect", "transactional", "queue"):
        if value := getattr(spec, name):
            yield name, value
    if spec.capabilities:
        yield "capabilities", list(spec.capabilities)


def declared_registry(given: Mapping[str, Any]) -> Registry:
    """The handlers that a caller declares, without their functions; InvalidInput unless `declare` could write them."""
    try:
        blocks = _handlers.validate_python(given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidInput(f"`handlers` cannot be read: {where}: {first['msg']}.") from None
    registry = Registry()
    for name, block in blocks.items():
        registry.register(
            HandlerSpec(
                name=name,
                function=_elsewhere,
                kind=block.kind,
                retry=None if block.retry is None else merged_retry(block.retry, NATIVE_RETRY),
                timeout=block.timeout,
                undo=block.undo,
                effect=None if block.effect is None else kernel.Effect(block.effect),
                transactional=block.transactional,
                capabilities=tuple(block.capabilities),
                queue=block.queue,
            )
        )
    return registry


def _elsewhere(**inputs: Any) -> None:
    """Stands for a handler whose code is in another process: its parameters are not known here."""
