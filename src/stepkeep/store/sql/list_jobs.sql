-- List jobs, newest first, before an id.
select tenant, id, action, state, options, created_at, created_by, vouched_by, api_key, idempotency_key, digest, seq,
    lease_until, holder, ended_at, scope
from jobs
where tenant = $1 and id < $2
order by id desc
limit $3
