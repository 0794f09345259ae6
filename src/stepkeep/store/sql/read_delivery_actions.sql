-- Read what people did to the deliveries of a run, newest first.
select tenant, at, actor, action, sink, run_id::text, seq, number, reason
from delivery_actions
where tenant = $1 and run_id = $2::uuid
order by id desc
limit $3
