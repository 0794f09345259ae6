"""The handlers of the demonstration: plain functions that pretend to be busy for a moment.

Imported by the tour and by the worker processes that it starts (`--app stepkeep.cli.demo.handlers`).
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from stepkeep.definition.python.handlers import step
from stepkeep.worker.answers import fail
from stepkeep.worker.context import Context

MOMENT = 0.25


# -- act one: onboarding ---------------------------------------------------------------------------------------------
@step("demo.create_account")
def create_account(company: str) -> dict[str, str]:
    time.sleep(MOMENT)
    return {"account": f"acct-{company}"}


@step("demo.close_account")
def close_account() -> None:
    time.sleep(MOMENT)


@step("demo.create_workspace")
def create_workspace(company: str) -> dict[str, str]:
    time.sleep(MOMENT)
    return {"workspace": f"{company}.example"}


@step("demo.delete_workspace")
def delete_workspace() -> None:
    time.sleep(MOMENT)


@step("demo.start_billing")
def start_billing(company: str) -> None:
    time.sleep(MOMENT)
    raise fail(f"{company} has no payment method", category="validation")


@step("demo.stop_billing")
def stop_billing() -> None:
    time.sleep(MOMENT)


@step("demo.send_welcome")
def send_welcome() -> None:
    time.sleep(MOMENT)


# -- act two: import -------------------------------------------------------------------------------------------------
@step("demo.fetch")
def fetch(ctx: Context, ledger: str) -> dict[str, int]:
    _note(ctx, ledger)
    time.sleep(MOMENT)
    return {"rows": 1000}


@step("demo.convert")
def convert(ctx: Context, ledger: str) -> dict[str, int]:
    _note(ctx, ledger)
    # The first worker never gets to the end of this: the tour kills it here.
    time.sleep(MOMENT if ctx.attempt > 1 else 60)
    return {"rows": 2000}


@step("demo.load")
def load(ctx: Context, ledger: str) -> dict[str, int]:
    _note(ctx, ledger)
    time.sleep(MOMENT)
    return {"loaded": 2000}


def _note(ctx: Context, ledger: str) -> None:
    """Leave a line that no rollback of ours could remove: proof of what was executed, and where."""
    with Path(ledger).open("a", encoding="utf-8") as file:
        file.write(f"{ctx.step} {os.getpid()}\n")


# -- act three: publication ------------------------------------------------------------------------------------------
@step("demo.write_draft")
def write_draft(title: str) -> dict[str, str]:
    time.sleep(MOMENT)
    return {"draft": title}


@step("demo.publish")
def publish(title: str) -> dict[str, str]:
    time.sleep(MOMENT)
    return {"published": title}
