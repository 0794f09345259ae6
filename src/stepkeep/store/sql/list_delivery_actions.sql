-- List what people did to sinks and deliveries of a tenant, newest first.
select tenant, at, actor, action, sink, run_id::text, seq, number, reason
from delivery_actions
where tenant = $1
order by id desc
limit $2
