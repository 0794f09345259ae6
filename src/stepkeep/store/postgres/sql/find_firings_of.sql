-- Find the firings that started runs. $2 is JSON: [run id, ...].
select fired.*
from json_array_elements_text($2::text::json) as asked (run_id)
cross join lateral (
    select tenant, trigger_name, moment, due_at, state, watched, made_at, depth, run_id::text, source, backfill, reason,
        given
    from firings
    where firings.tenant = $1 and firings.run_id = asked.run_id::uuid
    limit 1) as fired
