"""`python -m stepkeep.cli` is `stepkeep`; the demonstration starts its workers this way."""

from __future__ import annotations

import sys

from stepkeep.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
