"""The pytest plugin: `workbench` for testing workflows, `stepkeep_engine` for testing code that is handed an engine.

Installed with Stepkeep and found by pytest itself. Importing it costs nothing; the engine is imported by the first test
that asks for a fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from stepkeep.engine import Engine
    from stepkeep.testing.workbench import Workbench


@pytest.fixture
def workbench() -> Iterator[Workbench]:
    """A workbench of the test's own: handlers replaced by name, a clock to move, assertions on the path of a run."""
    from stepkeep.testing.workbench import Workbench

    with Workbench() as bench:
        yield bench


@pytest.fixture
def stepkeep_engine(tmp_path: Path) -> Iterator[Engine]:
    """An open engine on a SQLite file of this test's own."""
    from stepkeep.engine import Engine

    with Engine(f"sqlite:///{tmp_path / 'stepkeep.db'}") as engine:
        yield engine
