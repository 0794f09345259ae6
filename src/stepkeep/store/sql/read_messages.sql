-- Read all messages of a run in order of arrival.
select tenant, run_id::text, id, number, name, payload, sender, arrived_at, consumed_by
from messages
where tenant = $1 and run_id = $2
order by number
