-- Find the firing that started a run.
select tenant, trigger_name, moment, due_at, state, watched, made_at, depth, run_id::text, source, backfill, reason, given
from firings
where tenant = $1 and run_id = $2::text::uuid
limit 1
