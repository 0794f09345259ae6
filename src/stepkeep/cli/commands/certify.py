"""`stepkeep certify RUN`: what the judge says of a run, in every dialect's words. Reads only."""

from __future__ import annotations

from stepkeep.cli.arguments import RunId
from stepkeep.cli.asking import ask, of_run
from stepkeep.cli.printer import answer, page
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import FAILED, SUCCEEDED


def certify(settings: Settings, run: RunId) -> int:
    """Judge a run: its journal, its log in the words of every dialect, and the invariants of its own.

    The page names the journal's head and speaks for that. Exit status 1 when anything was found.
    """
    certificate = ask(settings, of_run(run, lambda engine, found: engine.certify(found)))
    if settings.json:
        answer(certificate.as_json())
    else:
        page(certificate.page().rstrip())
    return SUCCEEDED if certificate.ok else FAILED
