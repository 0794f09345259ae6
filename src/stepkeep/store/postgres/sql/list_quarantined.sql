-- List the quarantined runs of a tenant, newest first.
select tenant, run_id::text, quarantined_at, quarantined_by, reason, released_at, released_by, release_reason
from quarantine
where tenant = $1 and released_at is null
order by id desc
