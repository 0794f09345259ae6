-- Add a job. Nothing is added where a job has the same idempotency key.
insert into jobs (tenant, id, action, state, options, created_at, created_by, vouched_by, api_key, idempotency_key, digest, seq,
    lease_until, holder, ended_at, scope)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
on conflict do nothing
returning id
