-- Read a backfill by its id.
select tenant, id, trigger_name, state, since_at, until_at, cursor_at, at_once, started, skipped, refused, created_at,
    created_by, ended_at
from backfills
where tenant = $1 and id = $2
