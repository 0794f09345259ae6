-- Insert idempotency keys of new runs; in key order, so that two transactions cannot deadlock.
insert into idempotency_keys (tenant, operation, key, fingerprint, run_id, scope)
select *
from unnest($1::text::text[], $2::text[], $3::text[], $4::text[], $5::text::uuid[], $6::text[])
    as promised (tenant, operation, key, fingerprint, run_id, scope)
order by promised.tenant, promised.operation, promised.key, promised.scope
