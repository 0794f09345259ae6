"""A process that does nothing but work changes what is the process's own; one that merely holds a worker does not."""

from __future__ import annotations

import subprocess
import sys

PROBE = "import gc, sys; {setup}; print(sys.getswitchinterval() < 0.005, gc.get_threshold()[0] > 700, gc.isenabled())"


def probe(setup: str) -> list[str]:
    made = subprocess.run(
        [sys.executable, "-c", PROBE.format(setup=setup)], capture_output=True, text=True, check=True, timeout=60
    )
    return made.stdout.split()


def test_a_devoted_process_lets_threads_take_shorter_turns_and_seeks_garbage_less_often() -> None:
    assert probe("from stepkeep.worker.process import devote_process; devote_process()") == ["True", "True", "True"]


def test_a_program_that_imports_the_worker_keeps_its_own_settings() -> None:
    assert probe("import stepkeep.worker.loop, stepkeep.worker.process") == ["False", "False", "True"]
