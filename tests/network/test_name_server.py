"""Names whose addresses change, told by a real name server over UDP: no request goes where the check did not look."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.system_programs import need_program

SCRIPT = Path(__file__).parent / "name_server.py"


def test_a_name_that_turns_inward_between_two_questions_never_leads_to_the_canary(tmp_path: Path) -> None:
    unshare = need_program("unshare")
    argv = [unshare, "--map-root-user", "--mount", "--net", sys.executable, str(SCRIPT), str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    answers = found["answers"]
    assert answers["0 rebinds.test"] == "200", "the address that was checked is the one that is used"
    assert answers["1 rebinds.test"] == "AddressForbidden", "each request asks and checks again"
    assert answers["2 turns-inward.test"] == "AddressForbidden"
    assert answers["3 two-faced.test"] == "AddressForbidden", "one forbidden address among several is enough"
    assert found["asked"]["rebinds.test"] == 2, "one question for each request: nothing is resolved after the check"
    assert found["canary"] == 0
    assert found["allowed"] >= 1
