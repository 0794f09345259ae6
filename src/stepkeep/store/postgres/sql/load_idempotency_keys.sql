-- Read idempotency keys.
select held.tenant, held.operation, held.key, held.fingerprint, held.run_id::text, held.scope
from unnest($1::text[], $2::text[], $3::text[], $4::text[]) as wanted (tenant, operation, key, scope)
cross join lateral (
    select tenant, operation, key, fingerprint, run_id, scope
    from idempotency_keys
    where idempotency_keys.tenant = wanted.tenant and idempotency_keys.operation = wanted.operation
        and idempotency_keys.key = wanted.key and idempotency_keys.scope = wanted.scope
    offset 0
) as held
