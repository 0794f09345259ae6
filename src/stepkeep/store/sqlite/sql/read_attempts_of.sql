-- Read all attempts of runs, in the given order. ?2 is JSON: [run id, ...].
select t.tenant, t.run_id, t.no, t.fence, t.number, t.state, t.worker, t.started_at, t.ended_at, t.category,
       t.error, t.output, t.cost
from json_each(?2) w
cross join attempts t on t.tenant = ?1 and t.run_id = w.value
order by w.key, t.no, t.fence
