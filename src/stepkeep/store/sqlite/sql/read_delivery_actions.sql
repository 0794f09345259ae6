-- Read what people did to the deliveries of a run, newest first.
select tenant, at, actor, action, sink, run_id, seq, number, reason
from delivery_actions
where tenant = ?1 and run_id = ?2
order by id desc
limit ?3
