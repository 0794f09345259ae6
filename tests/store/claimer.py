"""A process of its own that claims until nothing is left: `python -m tests.store.claimer URL`.

It says `ready`, waits for a line, then claims and prints every step it was given, one JSON list per claim.
"""

import asyncio
import json
import sys

from tests.store.test_contract_work import claim

from stepkeep.store.connect import connect


async def main(url: str) -> None:
    store = connect(url)
    await store.open()
    print("ready", flush=True)
    sys.stdin.readline()
    empty = 0
    while empty < 5:
        claimed = await claim(store, 5)
        empty = 0 if claimed else empty + 1
        print(json.dumps(claimed))
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
