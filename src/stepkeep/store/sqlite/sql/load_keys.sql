-- Read keys. ?1 is JSON: [[tenant, id], ...].
select k.tenant, k.id, k.owner, k.secret_hash, k.scopes, k.created_at, k.created_by, k.expires_at, k.revoked_at,
    k.revoked_by, k.replaces, k.max_concurrent_runs, k.max_requests_per_min, k.queues, k.handlers, k.lineage
from json_each(?1) w
cross join api_keys k on k.tenant = w.value ->> 0 and k.id = w.value ->> 1
