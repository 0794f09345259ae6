"""A handler that emits two events, for `test_outbox`."""

import stepkeep as sk


@sk.step("outbox_cli.tell")
def tell(ctx: sk.Context) -> None:
    ctx.emit("order.paid", {"n": 1})
    ctx.emit("mail.sent", {"n": 2})
