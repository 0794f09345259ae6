"""`stepkeep definitions`, `publish`, `withdraw` and `restore`: published versions of workflows, and which may start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from stepkeep.cli.arguments import LARGEST, Apps, By, Elsewhere, WrittenAs, arg, opt
from stepkeep.cli.asking import table, tell
from stepkeep.cli.printer import quiet_stdout
from stepkeep.cli.session import load_handlers, load_workflow
from stepkeep.cli.settings import Settings

if TYPE_CHECKING:
    from stepkeep.engine import AsyncEngine
    from stepkeep.operations.publish import Definitions, DefinitionSummary
    from stepkeep.operations.withdrawn import Withdrawn

Workflow = Annotated[str, arg("WORKFLOW", "The name of a workflow.")]
Version = Annotated[int, arg("VERSION", "Its number.", min=1, max=LARGEST)]
Reason = Annotated[str, opt("--reason", "TEXT", "Why; it stays on record.", show_default=False)]


def definitions(
    settings: Settings,
    name: Annotated[str | None, arg("NAME", "Only the versions of this workflow.")] = None,
) -> int:
    """List published workflows with their versions."""

    def words(found: Definitions) -> None:
        nothing = "no workflow is published" if name is None else f"no workflow {name} is published"
        table([_line(one) for one in found.definitions], nothing)

    return tell(settings, lambda engine: engine.definitions(name=name), words)


def _line(one: DefinitionSummary) -> dict[str, Any]:
    gone = one.withdrawn
    return {**one, "digest": one.digest[:12], "withdrawn": "" if gone is None else f"{gone.by}: {gone.reason}"}


def publish(
    settings: Settings,
    file: Annotated[str, arg("FILE", "A definition: YAML, JSON, or FILE.py[:NAME].")],
    app: Apps = None,
    as_: WrittenAs = None,
    elsewhere: Elsewhere = False,
) -> int:
    """Publish a workflow without starting a run. The same version with other content is refused."""
    with quiet_stdout(settings.json):
        workflow = load_workflow(settings, file, None if elsewhere else load_handlers(app or []), as_, advises=True)

    async def work(engine: AsyncEngine) -> DefinitionSummary:
        plan = await engine.publish(workflow)
        found = await engine.definitions(name=plan.definition.name)
        return next(one for one in found.definitions if one.version == plan.definition.version)

    def words(one: DefinitionSummary) -> str:
        return f"{one.workflow} version {one.version} is published, digest {one.digest[:12]}"

    return tell(settings, work, words, under="definition", creates=True)


def withdraw(settings: Settings, workflow: Workflow, version: Version, reason: Reason, by: By = None) -> int:
    """Let no run of a published version start any more. Its live runs go on; `stepkeep restore` takes it back."""

    def words(one: Withdrawn) -> list[str]:
        said = "its firings are refused until you pause it, or publish a version"
        return [
            f"version {version} of {workflow} is withdrawn: no run of it starts; its live runs go on",
            *(f"the trigger {name} would start it: {said}" for name in one.triggers),
        ]

    return tell(
        settings,
        lambda engine: engine.versions.withdraw(workflow, version, reason=reason, by=by),
        words,
        under="withdrawn",
    )


def restore(settings: Settings, workflow: Workflow, version: Version, by: By = None) -> int:
    """Let runs of a withdrawn version start again."""
    return tell(
        settings,
        lambda engine: engine.versions.restore(workflow, version, by=by),
        lambda _: f"version {version} of {workflow} is restored: its runs start again",
        under="restored",
    )
