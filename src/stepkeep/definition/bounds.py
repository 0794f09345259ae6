"""Limits on sizes, durations and names that all definitions respect.

Numbers and patterns only. The front ends refuse values outside them; nothing at run time uses this module.
"""

from __future__ import annotations

import re

MAX_STEPS = 10_000
MAX_EDGES = 100_000
MAX_ATTEMPTS = 10_000
SEED_ATTEMPTS = 10
MAX_LOSSES = 100
MAX_QUORUM = 100
MAX_LEVELS = 10
MAX_FACTS = 50
MAX_TEXT = 10_000
MAX_PRIORITY = 1_000_000
MAX_SLOTS = 1_000_000
"""How many runs of a workflow, or of a tenant, a limit lets run at most."""
MAX_UNITS = 1_000_000_000
"""How many units a pool of a resource has at most."""
MAX_RESOURCES = 100
"""How many resources a step needs at most."""
MAX_LIMITS = 10
"""How many limits a step has at most."""
MAX_KEY = 255
"""How many characters the key of a limit has at most."""
MAX_ORDER = 1_000_000_000
MAX_VERSION = 1_000_000_000

MILLISECOND = 1_000
SECOND = 1_000_000
DAY = 86_400 * SECOND

STEP_TIMEOUT = (MILLISECOND, 7 * DAY)
RUN_TIMEOUT = (MILLISECOND, 3_650 * DAY)
REMINDER = (60 * SECOND, 365 * DAY)
LIMIT_PERIOD = (MILLISECOND, 366 * DAY)
BUDGET_PERIOD = (60 * SECOND, 366 * DAY)
DEADLINE = (MILLISECOND, 3_650 * DAY)
DELAY = (0, 7 * DAY)
RETENTION = (0, 36_500 * DAY)
START_DELAY = (0, 3_650 * DAY)
MAX_WIDTH = 10_000
"""How many elements a map or a loop has at most."""
MAX_ADDED = 200
"""How many steps a handler adds to a run at most."""
MAX_CALL_TEXT = 32_768
"""How many characters the step of a call has at most, as a worker without the database writes it."""
MAX_CALL_BYTES = 256 * 1024
"""How many bytes of JSON the arguments of a call hold at most."""
MAX_IN_FLIGHT = 1_000
MAX_CASES = 100
"""How many cases a choice has at most."""
MAX_GATHERED = 100
"""How many messages a wait takes at most."""
MESSAGE_TTL = (MILLISECOND, 365 * DAY)
INTERVAL = (SECOND, 366 * DAY)
JITTER = (0, DAY)
CATCH_UP = (0, 31 * DAY)
DEFAULT_CATCH_UP = DAY
MAX_TRIGGERS = 50
MAX_HOOKS = 50
"""Hooks of a workflow, and of each step; a definition has at most `MOST_HOOKS` of both together."""
MOST_HOOKS = 50
LEASE = (SECOND, DAY)
GRACE = (0, DAY)

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
NAME_RULE = "letters, digits, `_`, `.` and `-`, starting with a letter or digit, at most 63 characters"

FIELD_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
FIELD_NAME_RULE = "letters, digits and `_`, starting with a letter, at most 63 characters"

HANDLER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:/-]{0,126}")
HANDLER_NAME_RULE = "letters, digits, `_`, `.`, `:`, `/` and `-`, starting with a letter, at most 127 characters"

MAX_POLICY_RULES = 500
MAX_SHARED_BUDGETS = 50
MAX_BUDGET = 10**12
