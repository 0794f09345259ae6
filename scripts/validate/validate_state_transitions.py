"""Validate a log of state transitions, as seed 004 names it: python scripts/validate/validate_state_transitions.py FILE

It is `python -m stepkeep.conformance.validate`, and needs the package to be installed, nothing else.
"""

from __future__ import annotations

from stepkeep.conformance.validate import main

if __name__ == "__main__":
    raise SystemExit(main())
