"""Going on with finished runs for programs without an event loop: the methods of `continuations`, called and awaited.

It has no logic of its own: each method calls the one of the same name. `sync_engine.Engine` makes the object.
"""

from __future__ import annotations

from typing import Any

from stepkeep.continuations import AsyncContinuations
from stepkeep.operations.start import Started
from stepkeep.sync_administration import Call


class Continuations:
    """New runs that go on with finished ones: what was finished is adopted by reference, the rest runs again.

    >>> done = engine.run(hello, {"name": "Ada"})
    >>> engine.continuations.preview(done.run_id, "fork", start="greet")["runs_again"]
    ['greet']
    """

    def __init__(self, core: AsyncContinuations, call: Call) -> None:
        self._core, self._call = core, call

    def retry(
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
        return self._call(self._core.retry(run_id, version=version, idempotency_key=idempotency_key, by=by))

    def rerun(
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
        return self._call(
            self._core.rerun(run_id, start, input=input, version=version, idempotency_key=idempotency_key, by=by)
        )

    def fork(
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
        return self._call(
            self._core.fork(run_id, at, input=input, version=version, idempotency_key=idempotency_key, by=by)
        )

    def preview(
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
        return self._call(self._core.preview(run_id, how, start=start, input=input, version=version, by=by))
