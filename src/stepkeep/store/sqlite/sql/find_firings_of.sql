-- Find the firings that started runs. ?2 is JSON: [run id, ...].
select f.tenant, f.trigger_name, f.moment, f.due_at, f.state, f.watched, f.made_at, f.depth, f.run_id, f.source, f.backfill,
    f.reason, f.given
from json_each(?2) asked
cross join firings f indexed by firings_run on f.tenant = ?1 and f.run_id = asked.value
