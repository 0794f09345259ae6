-- List the backfills of a trigger, newest first.
select tenant, id, trigger_name, state, since_at, until_at, cursor_at, at_once, started, skipped, refused, created_at,
    created_by, ended_at
from backfills
where tenant = $1 and trigger_name = $2
order by created_at desc, id desc
limit $3
