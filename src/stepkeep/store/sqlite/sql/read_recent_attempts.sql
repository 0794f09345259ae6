-- Read how the attempts of these runs went, up to a limit. ?2 is JSON: [run id, ...].
select a.run_id, a.no, a.state, a.ended_at - a.started_at
from json_each(?2) w
cross join attempts a on a.tenant = ?1 and a.run_id = w.value
order by a.run_id desc, a.no, a.fence
limit ?3
