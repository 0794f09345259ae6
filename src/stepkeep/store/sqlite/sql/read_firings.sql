-- Read firings by their moments. ?3 is JSON: [moment, ...].
select tenant, trigger_name, moment, due_at, state, watched, made_at, depth, run_id, source, backfill, reason, given
from firings
where tenant = ?1 and trigger_name = ?2 and moment in (select value from json_each(?3))
order by moment
