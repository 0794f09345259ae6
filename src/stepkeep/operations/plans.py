"""Plans by definition id: derived once from the stored definition and kept, because a definition never changes."""

from __future__ import annotations

from collections.abc import Iterable

from stepkeep.definition.conditions import compile_condition
from stepkeep.kernel.definition import decode_definition
from stepkeep.kernel.plan import Plan, build_plan
from stepkeep.store.protocol import StoredDefinition


class PlanCache:
    """Every plan this process has met. Bounded by the number of published definitions in use."""

    def __init__(self) -> None:
        self._plans: dict[int, Plan] = {}

    def get(self, definition_id: int) -> Plan | None:
        return self._plans.get(definition_id)

    def add(self, stored: StoredDefinition) -> Plan:
        plan = self._plans.get(stored.id)
        if plan is None:
            plan = build_plan(
                decode_definition(stored.document),
                definition_id=stored.id,
                digest=stored.digest,
                queues=stored.queues,
                compile_condition=compile_condition,
            )
            self._plans[stored.id] = plan
        return plan

    def learn(self, definitions: Iterable[StoredDefinition]) -> None:
        for stored in definitions:
            self.add(stored)
