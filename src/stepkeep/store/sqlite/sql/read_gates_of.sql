-- Read the gates of runs, in the given order. ?2 is JSON: [run id, ...].
select t.tenant, t.run_id, t.no, t.activation, t.opened_at, t.level, t.due_at, t.shown, t.shown_digest, t.closed_at,
    t.outcome
from json_each(?2) w
cross join gates t on t.tenant = ?1 and t.run_id = w.value
order by w.key, t.no, t.activation
