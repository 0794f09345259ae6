"""`stepkeep diff A B`: what differs between two versions of a workflow, two runs, or two attempts. Reads only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from stepkeep.cli.arguments import LARGEST, arg, opt
from stepkeep.cli.asking import SHORTEST_ID, find_run, of_run, tell
from stepkeep.cli.settings import Settings
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.engine import AsyncEngine


def diff(
    settings: Settings,
    first: Annotated[str, arg("A", "WORKFLOW@VERSION, or the id of a run.")],
    second: Annotated[str | None, arg("B", "Another one of the same kind.")] = None,
    step: Annotated[str | None, opt("--step", "STEP", "With one run: a step whose attempts are compared.")] = None,
    attempts: Annotated[
        tuple[int, int] | None,
        opt("--attempts", "N M", "With --step: two numbers of attempts; the last two by default.", min=1, max=LARGEST),
    ] = None,
    live: Annotated[bool, opt("--live", "Also which live runs of version A could continue under version B.")] = False,
) -> int:
    """Compare two versions of a workflow, two runs, or two attempts of a step.

    Of versions: steps that were added, removed or changed, and what that means for runs of the old version.
    """
    if second is None or step is not None:
        return _of_attempts(settings, first, second, step, attempts)
    if attempts is not None:
        raise InvalidInput("--attempts goes with one run and --step.")
    of_versions = [version_in(text) for text in (first, second)]
    if second.isascii() and second.isdigit() and len(second) < SHORTEST_ID:
        raise InvalidInput(f"a version is written WORKFLOW@VERSION: stepkeep diff {first}@1 {first}@{second}.")
    if live and None in of_versions:
        raise InvalidInput("--live goes with two versions: WORKFLOW@VERSION.")

    async def compare(engine: AsyncEngine) -> Any:
        (old, new) = of_versions
        if old is not None and new is not None:
            if old[0] != new[0]:
                raise InvalidInput(f"{first} and {second} are versions of different workflows.")
            return await engine.compare_versions(old[0], old[1], new[1], live=live)
        if of_versions != [None, None]:
            raise InvalidInput("give two versions, each as WORKFLOW@VERSION, or two runs.")
        return await engine.compare_runs(await find_run(engine, first), await find_run(engine, second))

    def words(view: Any) -> Iterator[str]:
        from stepkeep.cli.render.differences import run_lines, version_lines

        return run_lines(view) if of_versions[0] is None else version_lines(view)

    return tell(settings, compare, words)


def _of_attempts(
    settings: Settings, run: str, second: str | None, step: str | None, numbers: tuple[int, int] | None
) -> int:
    if second is not None or step is None:
        raise InvalidInput("give two versions or two runs; or one run, and the --step whose attempts are compared.")
    from stepkeep.cli.render.differences import attempt_lines
    from stepkeep.operations.run_differences import compare_attempts

    async def compare(engine: AsyncEngine, run_id: str) -> Any:
        return compare_attempts(await engine.show(run_id, step=step), numbers)

    return tell(settings, of_run(run, compare), attempt_lines)


def version_in(text: str) -> tuple[str, int] | None:
    """The workflow and the version that a text names; None if it has no `@`."""
    name, at, version = text.rpartition("@")
    if not at:
        return None
    if not name or not version.isascii() or not version.isdigit():
        raise InvalidInput(f"a version is written WORKFLOW@VERSION, as order@3; not {text[:80]!r}.")
    if len(version) > len(str(LARGEST)) or int(version) > LARGEST:
        raise InvalidInput(f"a version is a whole number from 1 to {LARGEST}, not {version[:20]}.")
    return name, int(version)
