"""Writes the grants in docs/databases.md from `store.postgres.grants`. Run it after a change of a table's rights."""

from __future__ import annotations

import re
from pathlib import Path

from stepkeep.store.postgres.grants import Part, grants

PAGE = Path(__file__).parents[1] / "docs" / "databases.md"


def page() -> str:
    """The page with the statements for its three roles as they should be."""
    text = PAGE.read_text(encoding="utf-8")
    for part in Part:
        role = f"stepkeep_{part}"
        block = "```sql\n" + "\n".join([*grants(role, part, database="stepkeep"), "```\n"])
        pattern = rf"```sql\ngrant connect on database stepkeep to {role};\n.*?```\n"
        text, found = re.subn(pattern, block.replace("\\", r"\\"), text, flags=re.DOTALL)
        if found != 1:
            raise LookupError(f"{PAGE} has {found} blocks for {role}")
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
