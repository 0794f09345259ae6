"""Large payloads: written with the rows that refer to them, read whole, and gone with their run."""

import pytest
from tests.store.values import TENANT, a_run, a_step, load, new_run, run_id, save, want, writes

from stepkeep.kernel.errors import Contended, StoreError
from stepkeep.kernel.machine.rows import rows_of
from stepkeep.store.change import RunChange, Write
from stepkeep.store.protocol import Store
from stepkeep.store.rows import CHUNK_BYTES, Payload

DIGEST = "ab" * 32


def a_payload(size: int, digest: str = DIGEST) -> Payload:
    return Payload(TENANT, run_id(1), digest, bytes(range(256)) * (size // 256) + b"x" * (size % 256))


@pytest.mark.parametrize("size", [1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES + 5])
async def test_a_payload_of_any_size_is_read_as_it_was_written(store: Store, size: int) -> None:
    payload = a_payload(size)
    await store.change([], writes(Write(new_runs=[new_run(1, (a_step(1, 0),))], rows=rows_of([payload]))))
    assert await store.read_payload(TENANT, run_id(1), DIGEST) == payload.body
    assert await store.read_payload(TENANT, run_id(1), "cd" * 32) is None
    assert await store.read_payload(TENANT, run_id(2), DIGEST) is None
    assert await store.read_payload("other", run_id(1), DIGEST) is None
    assert await store.read_payload(TENANT, "no run", DIGEST) is None


async def test_the_same_payload_of_a_run_is_kept_once(store: Store) -> None:
    await save(store, new_run(1, (a_step(1, 0),)))
    for _ in range(2):
        await store.change([], writes(Write(rows=rows_of([a_payload(CHUNK_BYTES + 1)]))))
    found = await store.read_payload(TENANT, run_id(1), DIGEST)
    assert found == a_payload(CHUNK_BYTES + 1).body


async def test_a_write_that_fails_leaves_no_payload(store: Store) -> None:
    await save(store, new_run(1, (a_step(1, 0),)))
    wrong = Write(runs=[RunChange(was=77, run=a_run(1))], rows=rows_of([a_payload(5)]))
    with pytest.raises((Contended, StoreError)):
        await store.change([want(1)], writes(wrong))
    assert await store.read_payload(TENANT, run_id(1), DIGEST) is None
    assert (await load(store, want(1))).runs
