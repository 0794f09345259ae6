"""CPU and memory are read from the processes themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from stepkeep_lab.bench.machine import processor
from stepkeep_lab.bench.resource_usage import Spent, cpu_of, cpu_of_family, cpu_of_sessions, memory_of, spent

BURN = "import time\nwhile time.process_time() < 0.3: pass"


def test_cpu_of_children_that_have_ended_still_counts() -> None:
    before = cpu_of_family(os.getpid())
    subprocess.run([sys.executable, "-c", BURN], check=True)
    # The system counts in hundredths of a second; both readings may be off by one.
    assert cpu_of_family(os.getpid()) - before > 0.275


def test_cpu_of_a_child_is_not_that_of_its_parent() -> None:
    """Whatever the parent spends meanwhile, what the child spent is missing from it."""
    family, parent = cpu_of_family(os.getpid()), cpu_of(os.getpid())
    subprocess.run([sys.executable, "-c", BURN], check=True)
    parent = cpu_of(os.getpid()) - parent
    assert cpu_of_family(os.getpid()) - family - parent > 0.275


def test_a_living_child_is_counted_to_the_microsecond() -> None:
    with subprocess.Popen([sys.executable, "-c", BURN + "\nprint(flush=True); input()"], stdin=-1, stdout=-1) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert cpu_of_sessions(os.getpid()) >= 0.29
        child.communicate(b"\n")


def test_what_was_spent_is_a_difference_for_each_party() -> None:
    assert Spent(5.0, 3.0, 2.0).since(Spent(1.0, 1.0, 2.0)) == Spent(4.0, 2.0, 0.0)
    assert spent((), None).server == 0.0


def test_memory_is_what_the_process_holds() -> None:
    assert memory_of(os.getpid()) > 1_000_000


def test_the_processor_says_its_name_or_is_unknown(tmp_path: Path) -> None:
    told = tmp_path / "cpuinfo"
    told.write_text("processor : 0\nmodel name\t: Some Processor 9\n", encoding="utf-8")
    assert processor(told) == "Some Processor 9"
    assert processor(tmp_path / "none")
