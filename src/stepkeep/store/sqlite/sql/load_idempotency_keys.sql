-- Read those of these idempotency keys that exist. ?1 is JSON: [[tenant, operation, key, scope], ...].
select k.tenant, k.operation, k.key, k.fingerprint, k.run_id, k.scope
from json_each(?1) w
cross join idempotency_keys k
    on k.tenant = w.value ->> 0 and k.operation = w.value ->> 1 and k.key = w.value ->> 2
    and k.scope = w.value ->> 3
