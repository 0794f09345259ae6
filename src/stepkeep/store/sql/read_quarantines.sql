-- List every quarantine of a tenant's runs, released ones included, newest first.
select tenant, run_id::text, quarantined_at, quarantined_by, reason, released_at, released_by, release_reason
from quarantine
where tenant = $1
order by id desc
limit $2
