-- List the quarantined runs of a tenant, newest first.
select tenant, run_id, quarantined_at, quarantined_by, reason, released_at, released_by, release_reason
from quarantine indexed by quarantine_open
where tenant = ?1 and released_at is null
order by id desc
