"""Each test of people runs on both stores."""

from __future__ import annotations

import pytest

from tests.holding import Hold
from tests.people.stage import Stage, on


@pytest.fixture
def stage(database_url: str, hold: Hold) -> Stage:
    return hold(on(database_url))
