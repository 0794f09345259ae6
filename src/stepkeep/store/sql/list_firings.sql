-- List the firings of a trigger, the latest due first, before a given one.
select tenant, trigger_name, moment, due_at, state, watched, made_at, depth, run_id::text, source, backfill, reason, given
from firings
where tenant = $1 and trigger_name = $2 and (due_at, moment) < ($3::bigint, $4)
order by due_at desc, moment desc
limit $5
