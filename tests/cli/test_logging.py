"""What commands that stay log: their own lines, and of libraries only what needs attention."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from stepkeep.cli.streams import install_log


@pytest.fixture(autouse=True)
def loggers_as_they_were() -> Iterator[None]:
    loggers = logging.getLogger(), logging.getLogger("httpx2")
    before = [one.level for one in loggers]
    yield
    for one, level in zip(loggers, before, strict=True):
        one.setLevel(level)


@pytest.mark.parametrize(("level", "is_told"), [("info", False), ("debug", True)])
def test_a_remote_worker_logs_its_requests_only_for_debugging(
    level: str, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    install_log(level)
    assert logging.getLogger("httpx2").isEnabledFor(logging.INFO) is is_told
    assert logging.getLogger("stepkeep.worker").isEnabledFor(logging.INFO)
    assert logging.getLogger("httpx2").isEnabledFor(logging.WARNING)
