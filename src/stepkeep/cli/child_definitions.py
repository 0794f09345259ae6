"""Finds the definitions of children for `stepkeep simulate`: in the program, beside the file, or in a database.

It opens a database only if the command line names one, and changes nothing. A child that is not found is left out of
the walk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stepkeep.cli.asking import open_engine
from stepkeep.cli.session import DEFINITION_FILES, is_python, load_definition
from stepkeep.cli.settings import Settings
from stepkeep.kernel.errors import NotFound

if TYPE_CHECKING:
    from stepkeep.definition.registry import Registry
    from stepkeep.kernel.definition import Definition, SubWorkflow


class ChildDefinitions:
    """Where children of one file are looked for, in this order: its program and those of `--app`, its folder under the
    name of the child, and the database of `--db`."""

    def __init__(self, settings: Settings, file: str, apps: Sequence[str], handlers: Registry | None) -> None:
        self._settings, self._file, self._apps, self._handlers = settings, file, apps, handlers
        self._programs: dict[str, Definition] | None = None

    def __call__(self, child: SubWorkflow) -> Definition | None:
        found = self._programs_of().get(child.workflow) or self._beside(child.workflow)
        if found is not None and child.version in (0, found.version):
            return found
        return asyncio.run(self._published(child)) if "db" in self._settings.typed else None

    def _programs_of(self) -> dict[str, Definition]:
        if self._programs is None:
            from stepkeep.definition.apps import load_app
            from stepkeep.definition.python import workflows_in

            own = [f"{self._file.partition('.py:')[0].removesuffix('.py')}.py"] if is_python(self._file) else []
            modules = [load_app(one) for one in (*own, *self._apps)]
            self._programs = {flow.name: flow.definition() for module in modules for flow in workflows_in(module)}
        return self._programs

    def _beside(self, name: str) -> Definition | None:
        """The definition in `NAME.yaml` or another ending, in the folder of the file."""
        folder = Path(self._file).parent
        for ending in DEFINITION_FILES if Path(name).name == name else ():
            path = folder / f"{name}{ending}"
            if path.is_file():
                found = load_definition(str(path), self._handlers)
                return found if found.name == name else None
        return None

    async def _published(self, child: SubWorkflow) -> Definition | None:
        from stepkeep.operations.publish import find_plan

        async with open_engine(self._settings, operation="definitions") as engine:
            try:
                plan = await find_plan(engine.transactor, child.workflow, child.version or None, tenant=engine.tenant)
            except NotFound:
                return None
            return plan.definition
