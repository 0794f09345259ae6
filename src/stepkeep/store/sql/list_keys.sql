-- List the keys of a tenant, the newest first.
select tenant, id, owner, secret_hash, scopes, created_at, created_by, expires_at, revoked_at, revoked_by, replaces,
    max_concurrent_runs, max_requests_per_min, queues, handlers, lineage
from api_keys
where tenant = $1
order by created_at desc, id
