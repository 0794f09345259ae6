"""Tools for testing workflows.

    from stepkeep.testing import Workbench

    with Workbench() as bench:
        bench.replace("mail.send", fails_times=2, returns={"sent": True})
        run = bench.run("onboarding.yaml", {"email": "ada@example.com"})
        run.approve("sign-off")
        run.assert_path("create-account", "sign-off", "send-welcome")

This package is for tests, benchmarks and demos; the engine itself never imports it. Names are loaded when they are
first used. pytest finds the fixtures `workbench` and `stepkeep_engine` by itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepkeep.testing.bench_run import BenchRun
    from stepkeep.testing.replacements import LOSES_WORKER, TIMES_OUT, Call, Replacement
    from stepkeep.testing.workbench import Workbench

_HOMES = {
    "BenchRun": "stepkeep.testing.bench_run",
    "Call": "stepkeep.testing.replacements",
    "LOSES_WORKER": "stepkeep.testing.replacements",
    "Replacement": "stepkeep.testing.replacements",
    "TIMES_OUT": "stepkeep.testing.replacements",
    "Workbench": "stepkeep.testing.workbench",
}

__all__ = ["LOSES_WORKER", "TIMES_OUT", "BenchRun", "Call", "Replacement", "Workbench"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'stepkeep.testing' has no attribute {name!r}")
    return getattr(import_module(home), name)
