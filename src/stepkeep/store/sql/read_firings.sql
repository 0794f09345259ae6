-- Read firings by their moments. $3 is JSON: [moment, ...].
select tenant, trigger_name, moment, due_at, state, watched, made_at, depth, run_id::text, source, backfill, reason, given
from firings
where tenant = $1 and trigger_name = $2 and moment in (select json_array_elements_text($3::text::json))
order by moment
