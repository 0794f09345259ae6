"""Going on with finished runs as the engine offers it: `engine.continuations`. Each method calls one operation.

It decides nothing.
"""

from __future__ import annotations

from typing import Any

from stepkeep.definition import arguments
from stepkeep.engine.arguments import encode_payload, optional_key
from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.kernel.adoption import GoingOn
from stepkeep.kernel.errors import InvalidInput
from stepkeep.operations import going_on, validate
from stepkeep.operations.access import guarded
from stepkeep.operations.going_on import Wanted
from stepkeep.operations.start import Started
from stepkeep.store.bounds import MAX_VERSION

ASKED_FOR = (GoingOn.RETRY, GoingOn.RERUN, GoingOn.FORK)
"""The ways in which people go on with a finished run."""


@guarded("continuations.")
class AsyncContinuations(AsyncGroup):
    """New runs that go on with finished ones: what was finished is adopted by reference, the rest runs again.

    >>> done = engine.run(hello, {"name": "Ada"})
    >>> engine.continuations.preview(done.run_id, "fork", start="greet")["runs_again"]
    ['greet']
    """

    async def retry(
        self,
        run_id: str,
        *,
        version: int | None = None,
        idempotency_key: str | None = None,
        by: str | None = None,
    ) -> Started:
        """A new run that continues after a fix: finished steps are adopted, the others run again.

        It takes over the undo of the adopted steps. `version` is a newer version of the workflow.

        >>> run = engine.start(hello, {"name": "Ada"}, start_now=False).run_id
        >>> _ = engine.cancel(run)
        >>> engine.work_on(engine.continuations.retry(run).run_id).output
        'Hello, Ada'
        """
        return await self._go_on(run_id, _wanted(GoingOn.RETRY, version=version), idempotency_key, by)

    async def rerun(
        self,
        run_id: str,
        start: str,
        *,
        input: Any = None,  # noqa: A002 - the word users know
        version: int | None = None,
        idempotency_key: str | None = None,
        by: str | None = None,
    ) -> Started:
        """A new run in which the step `start` and all that depends on it run again.

        >>> done = engine.run(hello, {"name": "Ada"})
        >>> engine.work_on(engine.continuations.rerun(done.run_id, "greet").run_id).output
        'Hello, Ada'
        """
        wanted = _wanted(GoingOn.RERUN, start, input, version)
        return await self._go_on(run_id, wanted, idempotency_key, by)

    async def fork(
        self,
        run_id: str,
        at: str,
        *,
        input: Any = None,  # noqa: A002 - the word users know
        version: int | None = None,
        idempotency_key: str | None = None,
        by: str | None = None,
    ) -> Started:
        """A new run that takes another course from the step `at`, with another input if one is given.

        It has no business key, and never undoes what the earlier run did.

        >>> done = engine.run(hello, {"name": "Ada"})
        >>> engine.work_on(engine.continuations.fork(done.run_id, "greet", input={"name": "Bo"}).run_id).output
        'Hello, Bo'
        """
        return await self._go_on(run_id, _wanted(GoingOn.FORK, at, input, version), idempotency_key, by)

    async def preview(
        self,
        run_id: str,
        how: str,
        *,
        start: str | None = None,
        input: Any = None,  # noqa: A002 - the word users know
        version: int | None = None,
        by: str | None = None,
    ) -> dict[str, Any]:
        """What a retry, rerun or fork (`how`) would adopt and run again, and which effects may happen twice.

        >>> done = engine.run(hello, {"name": "Ada"})
        >>> engine.continuations.preview(done.run_id, "rerun", start="greet")["adopted"]
        []
        """
        way = GoingOn(arguments.choice("the way to go on", how, [str(one) for one in ASKED_FOR]))
        acting = self._acting(by)
        return await going_on.preview(
            self._transactor,
            validate.run_id(run_id),
            _wanted(way, start, input, version),
            tenant=self._tenant,
            actor=acting["actor"],
        )

    async def _go_on(self, run_id: str, wanted: Wanted, idempotency_key: str | None, by: str | None) -> Started:
        return await going_on.go_on(
            self._transactor,
            self._starter,
            validate.run_id(run_id),
            wanted,
            tenant=self._tenant,
            idempotency_key=optional_key("the idempotency key", idempotency_key),
            scope=self.access.key_scope,
            **self._acting(by),
        )


class Continuations(Blocking[AsyncContinuations]):
    retry = blocking(AsyncContinuations.retry)
    rerun = blocking(AsyncContinuations.rerun)
    fork = blocking(AsyncContinuations.fork)
    preview = blocking(AsyncContinuations.preview)


def _wanted(how: GoingOn, start: str | None = None, given: Any = None, version: int | None = None) -> Wanted:
    if how is GoingOn.RETRY and (start is not None or given is not None):
        raise InvalidInput("a retry has neither a step to go on from nor another input: use rerun or fork.")
    if how is not GoingOn.RETRY and start is None:
        raise InvalidInput(f"name the step from which to go on: a {how} needs one.")
    return Wanted(
        how=how,
        start=None if start is None else validate.key("the step", start),
        given=None if given is None else encode_payload(given),
        version=None if version is None else arguments.whole("the version", version, 1, MAX_VERSION),
    )
