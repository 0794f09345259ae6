"""docs/configuration.md names every environment variable and every argument that the code reads."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import stepkeep as sk
from stepkeep.engine.hosted import WorkerOptions

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
VARIABLE = re.compile(r"STEPKEEP_[A-Z_]+")


def test_every_environment_variable_is_documented_and_no_other() -> None:
    folders = [folder for folder in (ROOT / "src", ROOT / "lab" / "src") if folder.is_dir()]
    read = {name for folder in folders for file in folder.rglob("*.py") for name in VARIABLE.findall(file.read_text())}
    assert read | {"STEPKEEP_TEST_POSTGRES_DSN", "STEPKEEP_WRITE_GOLDEN"} == set(VARIABLE.findall(PAGE))


def test_every_argument_of_an_engine_and_of_a_worker_is_documented() -> None:
    for name in (*inspect.signature(sk.AsyncEngine).parameters, *WorkerOptions.__annotations__):
        assert f"`{name}`" in PAGE, name
