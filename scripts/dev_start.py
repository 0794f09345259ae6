"""Measures how long `stepkeep dev` takes in an empty directory until it serves, and what its imports cost.

    python scripts/dev_start.py [--rounds 5]

Prints wall and CPU seconds until `GET /readyz` answers, and the ten most expensive imports.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request


def serve_once() -> tuple[float, float]:
    """Wall and CPU seconds of one start."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STEPKEEP_")}
        began = time.monotonic()
        command = [sys.executable, "-m", "stepkeep", "dev", "--port", "0", "--json"]
        child = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True, env=environment)
        assert child.stdout is not None
        text = ""
        while '"address"' not in text:
            line = child.stdout.readline()
            if not line:
                raise SystemExit("dev did not start")
            text += line
        address = re.search(r'"address": "([^"]+)"', text)
        assert address is not None
        with urllib.request.urlopen(f"{address[1]}/readyz") as answer:  # noqa: S310 - its own address, on loopback
            answer.read()
        wall = time.monotonic() - began
        with open(f"/proc/{child.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rpartition(")")[2].split()
        cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        child.terminate()
        child.wait(30)
    return wall, cpu


def imports() -> list[tuple[int, str]]:
    """Cumulative microseconds of the modules that `dev` imports, the most expensive first."""
    code = "import stepkeep.cli.main, stepkeep.api.server, stepkeep.api.app, stepkeep.engine"
    done = subprocess.run([sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True)
    rows = re.findall(r"import time:\s+(\d+) \|\s+(\d+) \|( +)(\S+)", done.stderr)
    return sorted(((int(own), name) for own, _, _, name in rows), reverse=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    found = [serve_once() for _ in range(asked.rounds)]
    walls, cpus = zip(*found, strict=True)
    sys.stdout.write(f"until it serves: wall {statistics.median(walls):.2f} s (best {min(walls):.2f}), ")
    sys.stdout.write(f"CPU {statistics.median(cpus):.2f} s (best {min(cpus):.2f}), {asked.rounds} rounds\n")
    costs = imports()
    sys.stdout.write(f"imports: {sum(own for own, _ in costs) / 1e6:.2f} s in {len(costs)} modules\n")
    for own, name in costs[:10]:
        sys.stdout.write(f"  {own / 1000:7.1f} ms  {name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
