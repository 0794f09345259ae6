"""`stepkeep certify RUN`: what the judge says of a run, in every dialect's words. Reads only."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from stepkeep.cli.arguments import RunId
from stepkeep.cli.printer import answer, page
from stepkeep.cli.session import find_run, open_engine
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import FAILED, SUCCEEDED

if TYPE_CHECKING:
    from stepkeep.conformance.certificate import Certificate


def certify(settings: Settings, run: RunId) -> int:
    """Judge a run: its journal, its log in the words of every dialect, and the invariants of its own.

    The page names the journal's head and speaks for that. Exit status 1 when anything was found.
    """
    certificate = asyncio.run(_certify(settings, run))
    if settings.json:
        answer(certificate.as_json())
    else:
        page(certificate.page().rstrip())
    return SUCCEEDED if certificate.ok else FAILED


async def _certify(settings: Settings, run: str) -> Certificate:
    async with open_engine(settings) as engine:
        return await engine.certify(await find_run(engine, run))
