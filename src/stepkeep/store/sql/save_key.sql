-- Add a key, or end it.
insert into api_keys (
    tenant, id, owner, secret_hash, scopes, created_at, created_by, expires_at, revoked_at, revoked_by, replaces,
    max_concurrent_runs, max_requests_per_min, queues, handlers, lineage
)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
on conflict (tenant, id) do update set
    expires_at = excluded.expires_at, revoked_at = excluded.revoked_at, revoked_by = excluded.revoked_by,
    max_concurrent_runs = excluded.max_concurrent_runs, max_requests_per_min = excluded.max_requests_per_min,
    queues = excluded.queues, handlers = excluded.handlers
