"""What routes of the outside world work on: a dead event, a trigger, a hook with its secret, a kept message."""

from __future__ import annotations

import time
from typing import Any

from stepkeep.definition.python.registry import HandlerSpec
from stepkeep.engine import AsyncEngine
from stepkeep.network.signatures import sign, write_key

KEY = b"k" * 24
SECRET = write_key(KEY)
SECRETS = {"HOOK": SECRET}
BODY = b'{"order":"o-7"}'
HOOK: dict[str, Any] = {"hook": "payments", "scheme": "standard", "secrets": ["HOOK"]}
TO_MESSAGE = {**HOOK, "message": {"name": "paid", "key": "${{ body.order }}"}}
EMITTING = "workflow: emitting\ntimeout: 1h\nsteps: [{name: tell, uses: api.tell, timeout: 5s}]\n"
DAY = 86_400 * 1_000_000


def signed(number: int = 1, key: bytes = KEY, body: bytes = BODY) -> dict[str, str]:
    """The headers of a delivery."""
    return sign([key], id=f"msg_{number}", timestamp=int(time.time()), body=body)


def add_emitter(engine: AsyncEngine) -> None:
    """A handler that emits one event."""

    def tell(ctx: Any) -> None:
        ctx.emit("order.paid", {"order": 7})

    engine.registry.register(HandlerSpec(name="api.tell", function=tell))


async def let_die(engine: AsyncEngine, sink: str) -> str:
    """Fail the next event of a sink of kind host until it is dead; its id."""
    offset = engine.store.clock_offset
    try:
        for _ in range(10):
            engine.store.clock_offset += DAY
            [taken] = await engine.outbox.take(sink)
            assert await engine.outbox.fail(taken, "no answer")
    finally:
        engine.store.clock_offset = offset
    return taken.events[0].id
