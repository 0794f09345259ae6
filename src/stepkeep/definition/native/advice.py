"""Says wherever a definition enters which of its fields have no effect: nothing is accepted and ignored in silence.

The rest of the advice is for `stepkeep check`. Loaders and `Workflow.definition` call `log_ignored_once`, which logs
each text once under `stepkeep.definition`; the command line prints the same texts itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import lru_cache

from stepkeep.definition.findings import Finding, Source, located
from stepkeep.kernel.errors import Problem

log = logging.getLogger("stepkeep.definition")

MOST_TOLD = 1_000
"""Texts that are remembered, so that a program that starts many runs of one workflow logs them once."""


def advised(source: Source, findings: Iterable[Finding]) -> dict[str, tuple[Problem, ...]]:
    """The parts of a check report: all advice, and of it what is about fields without effect."""
    found = list(findings)
    return {
        "warnings": located(source, found),
        "ignored": located(source, [finding for finding in found if finding.ignored]),
    }


def log_ignored_once(ignored: Sequence[Problem]) -> None:
    """Log these problems, each once in the life of the process."""
    for problem in ignored:
        _warn_once(str(problem))


@lru_cache(MOST_TOLD)
def _warn_once(text: str) -> None:
    log.warning("%s", text)
