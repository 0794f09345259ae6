-- Read the firings that a sweep must read again, with the states of their runs.
select f.tenant, f.trigger_name, f.moment, f.due_at, f.state, f.watched, f.made_at, f.depth, f.run_id::text, f.source,
    f.backfill, f.reason, f.given, r.state as run_state
from firings as f
left join runs as r on r.tenant = f.tenant and r.id = f.run_id
where f.tenant = $1 and f.trigger_name = $2 and f.watched = 1 and f.state <> 'awaiting'
order by f.due_at, f.moment
limit $3
