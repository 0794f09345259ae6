"""Expressions in a definition: each one compiles, and looks only at what has always happened before it is evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stepkeep.definition.findings import Finding, Path
from stepkeep.definition.graph import Ancestry
from stepkeep.definition.written import StepBlock, WorkflowBlock


def check_expressions(
    data: dict[str, Any],
    written: WorkflowBlock | None,
    steps: Mapping[Path, StepBlock],
    ancestry: Ancestry | None,
    names: set[str],
) -> Iterator[Finding]:
    yield from ()
