"""The format of the workstream dialect: the document of seed 004.

It names the checks in their order and contains none of them. The dialect registry finds `FRONT` here. Tasks are
programs, so that it needs no handlers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stepkeep.definition.findings import Finding, Path
from stepkeep.definition.native.graph import Ancestry, check_graph
from stepkeep.dialects.format import Format, FormatReading, outline, valid_blocks
from stepkeep.dialects.workstream.build import build
from stepkeep.dialects.workstream.checks import check_by_native, check_final_rules, check_tasks, in_our_words, lint
from stepkeep.dialects.workstream.repository import check_repository
from stepkeep.dialects.workstream.written import TaskBlock, WorkstreamBlock

TASKS: Path = ("tasks",)


def _problems(reading: FormatReading[WorkstreamBlock]) -> Iterator[Finding]:
    data, written = reading.data, reading.written
    nodes = list(outline(data, TASKS, name="task_id", edges="dependencies"))
    tangles = check_graph(nodes)
    yield from (in_our_words(finding) for finding in tangles)
    ancestry = None if tangles else Ancestry({node.name: [name for name, _ in node.after] for node in nodes})
    tasks = dict(valid_blocks(data, TASKS, TaskBlock) if written is None else _numbered(written))
    yield from check_tasks(data, tasks)
    yield from check_final_rules(data)
    yield from check_repository(data, tasks)
    yield from check_by_native(data, tasks, ancestry, {node.name for node in nodes})


def _numbered(written: WorkstreamBlock) -> Iterator[tuple[Path, TaskBlock]]:
    yield from (((*TASKS, place), task) for place, task in enumerate(written.tasks))


def _amend(schema: dict[str, Any]) -> None:
    """The models hold microseconds; the format has seconds."""
    execution = schema["$defs"]["ExecutionBlock"]["properties"]
    execution["timeout_seconds"]["default"] = 600
    execution["retry_delay_seconds"]["default"] = 2


FRONT = Format(
    model=WorkstreamBlock,
    title="Workstream, seed 004",
    is_a="A workstream is a mapping with `workstream_id` and `tasks`.",
    claims=lambda data: "workstream_id" in data,
    problems=_problems,
    build=lambda written, _: build(written),
    advice=lambda written, *_: lint(written),
    reword=in_our_words,
    amend=_amend,
)
