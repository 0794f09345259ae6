"""Inbound webhooks: reads the definition of an endpoint, verifies a delivery, and maps it to a message or a start.

`receive` is pure: it is told the time and the keys, and returns a value that says what should happen. It sends and
starts nothing, and remembers no delivery: the id in its answer does that. Operations call it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from stepkeep.definition.expressions.conditions import compile_truth
from stepkeep.definition.expressions.expressions import Scope, compile_template
from stepkeep.definition.expressions.scope import is_secret_name
from stepkeep.definition.text.json_text import strict_json
from stepkeep.edges.safe_text import inert_line
from stepkeep.kernel.errors import ExpressionError, InvalidInput
from stepkeep.network.signatures import Headers, SignatureRefused, SignedDelivery, body_id, verify, verify_github

MAX_BODY = 1024 * 1024
MAX_SECRETS = 4
MAX_NAME = 100
MAX_KEY = 500

DELIVERY_FIELDS = ("id", "event", "sent_at")
FACTS: dict[str, tuple[str, ...] | None] = {"body": None, "delivery": DELIVERY_FIELDS}


class MessageMap(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A message to the run with this business key; with `start`, a run of this workflow is started if none has it."""

    name: str
    key: str
    payload: Any = "${{ body }}"
    start: str | None = None
    input: Any = None


class StartMap(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A start of the newest version of a workflow."""

    workflow: str
    input: Any = "${{ body }}"
    business_key: str | None = None


class Hook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An endpoint. `secrets` are names, newest first: all of them verify. `when` ignores deliveries that it is false
    for. Exactly one of `message` and `start` is given; their texts may have expressions over `body` and `delivery`."""

    hook: str
    scheme: Literal["standard", "github"]
    secrets: tuple[str, ...]
    message: MessageMap | None = None
    start: StartMap | None = None
    when: str | None = None


class ToSend(msgspec.Struct, frozen=True, kw_only=True):
    """Send this message; `id` is the same for the same delivery."""

    id: str
    name: str
    key: str
    payload: Any
    start: str | None = None
    input: Any = None


class ToStart(msgspec.Struct, frozen=True, kw_only=True):
    """Start a run with `id` as its idempotency key."""

    id: str
    workflow: str
    input: Any
    business_key: str | None = None


class Ignored(msgspec.Struct, frozen=True, kw_only=True):
    """The delivery is genuine, and its `when` is false."""

    id: str


class HookRefused(msgspec.Struct, frozen=True, kw_only=True):
    """The delivery is not accepted.

    `code` is too_large, missing, malformed, too_old, too_new, wrong, no_json or unmapped.
    """

    code: str
    message: str


Decision = ToSend | ToStart | Ignored | HookRefused


def read_hook(given: Mapping[str, Any]) -> Hook:
    """The checked definition of an endpoint; raises InvalidInput."""
    try:
        hook = msgspec.convert(dict(given), Hook)
    except (msgspec.ValidationError, TypeError, ValueError) as problem:
        raise InvalidInput(f"the definition of a hook: {inert_line(str(problem), 300)}.") from None
    if (
        not hook.hook.isascii()
        or not hook.hook.replace("-", "").replace("_", "").isalnum()
        or len(hook.hook) > MAX_NAME
    ):
        raise InvalidInput(f"the name of a hook has letters, digits, - and _, {MAX_NAME} at most.")
    if (hook.message is None) is (hook.start is None):
        raise InvalidInput(f"hook {hook.hook}: give either message or start.")
    if not 0 < len(hook.secrets) <= MAX_SECRETS or not all(is_secret_name(name) for name in hook.secrets):
        raise InvalidInput(f"hook {hook.hook}: secrets has the names of 1 to {MAX_SECRETS} secrets, newest first.")
    try:
        _template(hook)
        if hook.when is not None:
            compile_truth(hook.when, Scope(facts=FACTS))
    except ExpressionError as problem:
        raise InvalidInput(f"hook {hook.hook}: {problem}") from None
    return hook


def receive(hook: Hook, keys: Sequence[bytes], headers: Headers, body: bytes, *, now: int) -> Decision:
    """What should happen for this delivery. `body` is what came over the line; `now` is in seconds since 1970."""
    if len(body) > MAX_BODY:
        return HookRefused(code="too_large", message=f"the body has more than {MAX_BODY} bytes")
    try:
        delivery = _verified(hook, keys, headers, body, now)
    except SignatureRefused as problem:
        return HookRefused(code=problem.code, message=str(problem))
    try:
        content = strict_json(body)
    except InvalidInput as problem:
        return HookRefused(code="no_json", message=inert_line(str(problem), 300))
    facts = {"body": content, "delivery": msgspec.to_builtins(delivery)}
    # The id of a GitHub delivery is not signed: a stolen delivery could come again under another one.
    once = f"hook:{hook.hook}:{body_id(body) if hook.scheme == 'github' else delivery.id}"
    try:
        if hook.when is not None and compile_truth(hook.when, Scope(facts=FACTS)).evaluate(facts) is not True:
            return Ignored(id=once)
        return _mapped(hook, once, _template(hook).render(facts))
    except ExpressionError as problem:
        return HookRefused(code="unmapped", message=f"the delivery cannot be mapped: {inert_line(str(problem), 300)}")


def _verified(hook: Hook, keys: Sequence[bytes], headers: Headers, body: bytes, now: int) -> SignedDelivery:
    if hook.scheme == "github":
        return verify_github(keys, headers, body)
    return verify(keys, headers, body, now=now)


def _template(hook: Hook) -> Any:
    mapping = hook.message if hook.message is not None else hook.start
    return compile_template(msgspec.to_builtins(mapping), Scope(facts=FACTS))


def _mapped(hook: Hook, once: str, found: Any) -> Decision:
    names = ("name", "key") if hook.message is not None else ("business_key",)
    for name in names:
        text = found.get(name)
        if name in found and (not isinstance(text, str) or not 0 < len(text) <= MAX_KEY):
            return HookRefused(code="unmapped", message=f"{name} is no text of 1 to {MAX_KEY} characters")
    if hook.message is not None:
        # A workflow is named by the definition, never by a sender.
        given = {"payload": found.get("payload", None), "start": hook.message.start, "input": found.get("input")}
        return ToSend(id=once, name=found["name"], key=found["key"], **given)
    assert hook.start is not None
    return ToStart(
        id=once, workflow=hook.start.workflow, input=found.get("input"), business_key=found.get("business_key")
    )
