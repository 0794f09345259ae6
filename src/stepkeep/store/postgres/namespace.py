"""The schema of PostgreSQL that holds the tables, as a name: its search path, notification channel and lock.

It reads no database. The URL gives the name; the store looks for an installation and tells its pools the result.
Everything that two installations in one database must not share is derived here.
"""

from __future__ import annotations

import re
from zlib import crc32

import msgspec

from stepkeep.kernel.errors import InvalidInput

DEFAULT = "stepkeep"

OLD = "public"
"""Where versions without a schema of their own made the tables, with the channel and the lock of those versions."""

_NAME = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,49}")
_LOCK = 7_310_579_626_414_137


class Namespace(msgspec.Struct, frozen=True):
    """A schema by its name, which needs no quotes in a search path."""

    name: str

    @property
    def search_path(self) -> str:
        """This schema alone. Temporary tables come last, so that none of user code can hide a table of ours."""
        return f"{self.name}, pg_temp"

    @property
    def channel(self) -> str:
        return "stepkeep" if self.name == OLD else f"stepkeep_{self.name}"

    @property
    def lock(self) -> int:
        """The key of the advisory lock of migrations and maintenance."""
        return _LOCK if self.name == OLD else _LOCK + crc32(self.name.encode())


def read_namespace(name: str) -> Namespace:
    """The schema that a URL names.

    >>> read_namespace("shop_flows").channel
    'stepkeep_shop_flows'
    """
    if _NAME.fullmatch(name) is None or name == "information_schema":
        raise InvalidInput(
            "schema in the database URL must be 1 to 50 characters from a-z, 0-9 and _, must not begin with a digit or "
            "pg_, and must not be information_schema. Write ?schema=stepkeep, for example."
        )
    return Namespace(name)
