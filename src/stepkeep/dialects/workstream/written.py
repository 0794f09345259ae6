"""The models of the workstream format: the seed's task files in one document, one strict model per block.

`checks` checks relations between the parts, and `build` fills in the defaults. The published JSON Schema is generated
from here.
"""

from __future__ import annotations

import shlex
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from stepkeep.definition import bounds
from stepkeep.definition.durations import format_duration
from stepkeep.definition.expressions.template_text import OPENING, Embedded, Unclosed, split
from stepkeep.definition.native.validators import SeedRetries, Word, given
from stepkeep.definition.native.written import ArchiveBlock, Block, Name, Text

TASK_STATES = Literal["pending", "queued", "running", "validating", "completed", "failed", "retrying", "cancelled"]


def _seconds(value: Any, limits: tuple[int, int]) -> int:
    """A number of seconds within limits, as whole microseconds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PydanticCustomError("float_type", "must be a number")
    least, most = limits
    if not least <= value * bounds.SECOND <= most:
        span = {"least": format_duration(least), "most": format_duration(most)}
        raise PydanticCustomError("out_of_bounds", "must be from {least} to {most}", span)
    return round(value * bounds.SECOND)


def _within(limits: tuple[int, int]) -> BeforeValidator:
    return BeforeValidator(partial(_seconds, limits=limits), json_schema_input_type=float)


def _arguments(value: Any) -> Any:
    """A command as a list; a text is split like a shell would, but no shell ever reads it."""
    if not isinstance(value, str):
        return value
    try:
        return split_command(value)
    except ValueError as problem:
        raise PydanticCustomError("quotes", "cannot be taken apart: {why}", {"why": str(problem).lower()}) from None


def split_command(text: str) -> list[str]:
    """The words of a command line; an expression stays whole, whatever spaces and quotes it holds.

    >>> split_command("pytest -k 'not slow' ${{ input.paths[0] }}")
    ['pytest', '-k', 'not slow', '${{ input.paths[0] }}']
    """
    kept: list[str] = []
    line = ""
    for piece in split(text):
        if isinstance(piece, str):
            line += piece
            continue
        line += f"\0{len(kept)}\0"
        kept.append(text[piece.offset :] if isinstance(piece, Unclosed) else _whole(piece))
    return [_put_back(word, kept) for word in shlex.split(line)]


def _whole(piece: Embedded) -> str:
    return f"{OPENING}{piece.source}}}}}"


def _put_back(word: str, kept: list[str]) -> str:
    # Every second piece between the marks is the number of a removed expression.
    pieces = word.split("\0")
    return "".join(kept[int(piece)] if place % 2 else piece for place, piece in enumerate(pieces))


def _amount(value: Any) -> Any:
    if value in ("exclusive", "shared") or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise PydanticCustomError("amount", "must be exclusive, shared or a whole number")


def _version(value: Any) -> Any:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return value
    raise PydanticCustomError("string_type", "must be text")


Amount = Annotated[Any, BeforeValidator(_amount, json_schema_input_type=Literal["exclusive", "shared"] | int)]
SchemaVersion = Annotated[Any, BeforeValidator(_version, json_schema_input_type=str | float)]


CommandLine = Annotated[
    list[Text], BeforeValidator(_arguments, json_schema_input_type=Text | list[Text]), Field(min_length=1)
]


class RequirementsBlock(Block):
    """What a worker must have to run the task."""

    capabilities: list[Word] = Field(default=[], max_length=100)
    min_version: Word | None = None


class ExecutionBlock(Block):
    """The program of a task, and its retry policy."""

    command: CommandLine = Field(max_length=1000)
    working_directory: Text | None = None
    timeout_seconds: Annotated[int, _within(bounds.STEP_TIMEOUT)] = 600 * bounds.SECOND
    max_retries: SeedRetries = 3
    retry_delay_seconds: Annotated[int, _within(bounds.DELAY)] = 2 * bounds.SECOND


def _rule_command(value: Any) -> Any:
    """A command alone stands for a block with that one key."""
    return {"command": value} if isinstance(value, str | list) else value


class RuleCommandBlock(Block):
    """The command of a named rule. It holds if the command ends with 0, and if `silent` also prints nothing."""

    command: CommandLine = Field(max_length=1000)
    working_directory: Annotated[Text | None, given(Text)] = None
    timeout_seconds: Annotated[int | None, _within(bounds.STEP_TIMEOUT)] = None
    silent: bool = False


class RulesBlock(Block):
    """Rules around the execution: names, or expressions in `${{ }}`. A list that is not written is what the type of the
    task brings."""

    pre_execution: Annotated[list[Text] | None, given(list[Text])] = Field(default=None, max_length=100)
    post_execution: Annotated[list[Text] | None, given(list[Text])] = Field(default=None, max_length=100)


class FinalRulesBlock(Block):
    """Rules of the whole workstream, checked when all tasks are completed."""

    post_execution: list[Text] = Field(default=[], max_length=100)


class ContextBlock(Block):
    """What a task should see of the code. `required_files` must be there before it runs; the rest is only shown."""

    max_context_tokens: int | None = Field(default=None, ge=1)
    required_files: list[Text] = Field(default=[], max_length=bounds.MAX_STEPS)
    optional_files: list[Text] = Field(default=[], max_length=bounds.MAX_STEPS)
    exclude_patterns: list[Text] = Field(default=[], max_length=bounds.MAX_STEPS)


class TaskBlock(Block):
    """One task."""

    task_id: Name
    workstream_id: Text | None = None
    name: Text = ""
    description: Text = ""
    type: Literal["aider", "pytest", "lint", "custom"] = "custom"
    dependencies: list[Text] = Field(default=[], max_length=bounds.MAX_STEPS)
    blocks: list[Text] = Field(default=[], max_length=bounds.MAX_STEPS)
    worker_requirements: RequirementsBlock = RequirementsBlock()
    execution: ExecutionBlock
    validation_rules: RulesBlock = RulesBlock()
    critical: bool | None = None
    is_critical: bool | None = None
    context_requirements: ContextBlock | None = None
    resource_requirements: dict[Word, Amount] = Field(default={}, max_length=100)
    status: TASK_STATES = "pending"
    state: dict[str, Any] | None = None
    schema_version: SchemaVersion = None
    schema_url: Text | None = None


class RepositoryBlock(Block):
    """The git repository that the tasks work on: each run has a branch and a worktree of its own."""

    path: Text
    base: Text = "main"
    branch: Text = "workstreams/{workstream_id}/{run_id}"
    worktrees: Annotated[Text | None, given(Text)] = None
    capabilities: list[Word] = Field(default=[], max_length=100)


class WorkstreamBlock(Block):
    """A workstream: tasks, their dependencies, and the longest total duration."""

    workstream_id: Name
    name: Text = ""
    description: Text = ""
    version: int = Field(default=1, ge=1, le=bounds.MAX_VERSION)
    max_duration_seconds: Annotated[int | None, _within(bounds.RUN_TIMEOUT)] = None
    repository: Annotated[RepositoryBlock | None, given(RepositoryBlock)] = None
    archive: Annotated[ArchiveBlock | None, given(ArchiveBlock)] = None
    validation_rules: FinalRulesBlock = FinalRulesBlock()
    rule_commands: dict[
        Name,
        Annotated[
            RuleCommandBlock,
            BeforeValidator(_rule_command, json_schema_input_type=Text | list[Text] | RuleCommandBlock),
        ],
    ] = Field(default={}, max_length=100)
    schema_version: SchemaVersion = None
    schema_url: Text | None = None
    tasks: list[TaskBlock] = Field(min_length=1, max_length=bounds.MAX_STEPS)
