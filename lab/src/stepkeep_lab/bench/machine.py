"""Describes the machine: processor, cores, memory and versions. No names and no paths, because reports are
published."""

from __future__ import annotations

import os
import platform
import statistics
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from stepkeep_lab.bench.sql import one_value
from stepkeep_lab.postgres import PostgresServer

PAGE = 8192
DURABLE = ("fsync", "synchronous_commit", "full_page_writes")


def machine() -> dict[str, str]:
    """The machine, as far as figures depend on it, and how busy others keep it."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": processor(),
        "cores": f"{os.cpu_count()} cores",
        "memory": f"{memory / 2**30:.0f} GB",
        "system": f"{platform.system()} {platform.machine()}",
        "load": f"load average {os.getloadavg()[0]:.1f} when it began",
        "disk": f"{sync_milliseconds():.2f} ms for a sync of the disk",
    }


def sync_milliseconds(times: int = 50) -> float:
    """How long the disk takes to make one page safe; a machine that others keep busy shows here first."""
    taken = []
    with tempfile.TemporaryFile() as file:
        for place in range(times):
            os.pwrite(file.fileno(), bytes(PAGE), place * PAGE)
            begun = time.perf_counter()
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - begun)
    return statistics.median(taken) * 1000


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """What the processor calls itself."""
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def versions() -> dict[str, str]:
    """What was measured with."""
    import apsw

    return {
        "stepkeep": version("stepkeep"),
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "apsw": version("apsw"),
    }


async def server_facts(server: PostgresServer) -> dict[str, str]:
    """The version of a PostgreSQL server, and that it is durable."""
    facts = {"postgresql": str(await one_value(server.dsn(), "show server_version")), "asyncpg": version("asyncpg")}
    return facts | {name: str(await one_value(server.dsn(), f"show {name}")) for name in DURABLE}
