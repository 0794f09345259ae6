-- Insert idempotency keys of new runs; in key order, so that two transactions cannot deadlock.
insert into idempotency_keys (tenant, operation, key, fingerprint, run_id)
select *
from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text::uuid[]) as promised (tenant, operation, key)
order by promised.tenant, promised.operation, promised.key
