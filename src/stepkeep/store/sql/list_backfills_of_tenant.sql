-- List the backfills of a tenant, newest first, before an id.
select tenant, id, trigger_name, state, since_at, until_at, cursor_at, at_once, started, skipped, refused, created_at,
    created_by, ended_at
from backfills
where tenant = $1 and id < $2
order by id desc
limit $3
