"""Each test of triggers runs on both stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.holding import Hold
from tests.triggers.stage import EIGHT, Stage
from tests.workbench import benches


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[list[Stage]]:
    async with benches(url, 3) as found:
        stages = [Stage(bench) for bench in found]
        for stage in stages:
            await stage.set_clock(EIGHT)
        yield stages


@pytest.fixture
def stages(database_url: str, hold: Hold) -> list[Stage]:
    """Three openings of one database, as three workers have it. Their clocks are set to half past eight."""
    return hold(opened(database_url))


@pytest.fixture
def stage(stages: list[Stage]) -> Stage:
    return stages[0]
