"""What belongs to another tenant costs the same work as what does not exist: the same statements, route by route."""

from __future__ import annotations

from typing import Any

import pytest

from stepkeep.operations.people import audit
from tests.api.stage import RIVAL, on
from tests.api.test_matrix import MAKES, MISSING, OWN_TENANT, Matrix, furnish
from tests.suites import first_on

READS = ("_find", "_read")


class Statements:
    """The statements that a store is asked for, as they are sent, and the changes by name."""

    def __init__(self, store: Any) -> None:
        self.seen: list[str] = []
        for part in (store, store.people, store.triggers, store.deliveries):
            for name in READS:
                if hasattr(part, name):
                    setattr(part, name, self._noting(getattr(part, name)))
        for name in ("change", "save_setting", "read_whole", "quarantine", "release"):
            if hasattr(store, name):
                setattr(store, name, self._naming(name, getattr(store, name)))

    def _noting(self, read: Any) -> Any:
        async def noted(convert: Any, statement: str, *arguments: Any) -> Any:
            self.seen.append(statement)
            return await read(convert, statement, *arguments)

        return noted

    def _naming(self, name: str, call: Any) -> Any:
        async def noted(*arguments: Any, **named: Any) -> Any:
            self.seen.append(name)
            return await call(*arguments, **named)

        return noted


@first_on("sqlite")
async def test_every_route_does_the_same_work_for_what_is_foreign_and_for_what_is_missing(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on(database_url) as stage:
        theirs = await furnish(stage)
        # Nothing is read again, and no entry of the audit log is written, because time has passed.
        monkeypatch.setattr(audit, "FLUSH_SECONDS", 3600.0)
        stage.app.service.callers._monotonic = lambda: 0.0
        stage.engine.quotas._monotonic = lambda: 0.0
        async with stage.client(await stage.key(tenant=RIVAL, owner="eve")) as client:
            matrix = Matrix(stage, (await client.get("/openapi.json")).json())
            statements = Statements(stage.engine.store)
            compared = 0
            for operation in matrix.operations:
                if "{" not in operation.path or operation.route.startswith(MAKES) or operation.route in OWN_TENANT:
                    continue
                work = []
                for values in (MISSING, theirs, MISSING, theirs):
                    statements.seen.clear()
                    await matrix.send(client, operation, values)
                    await stage.engine.access.audit_log.close()  # writes now what it would write soon
                    work.append(list(statements.seen))
                assert work[2] == work[3], operation.route
                compared += bool(work[3])
            assert compared > 30
