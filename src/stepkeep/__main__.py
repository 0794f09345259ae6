"""`python -m stepkeep`: the same program as `stepkeep`."""

import sys

from stepkeep.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
