"""The bound on attempts of one step: 10,000, in the formats of the seeds 10; STEPKEEP_MAX_ATTEMPTS replaces both.

It holds where a definition is read. Runs of a published definition keep their policy, whatever the bound is later. The
native format, the Python `Retry` and the dialects' formats use it.
"""

from __future__ import annotations

import os

from stepkeep.definition.bounds import MAX_ATTEMPTS
from stepkeep.kernel.errors import InvalidInput

VARIABLE = "STEPKEEP_MAX_ATTEMPTS"


def attempts_bound(usual: int = MAX_ATTEMPTS) -> int:
    """The bound that holds in this process; `usual` is that of the format, without a bound by the operator."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return usual
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MAX_ATTEMPTS:
        raise InvalidInput(f"{VARIABLE} must be a whole number from 1 to {MAX_ATTEMPTS}, not {text[:40]!r}.")
    return int(text)
