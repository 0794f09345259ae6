-- Read the inboxes of runs, in the given order.
select child.*
from unnest($2::text::uuid[]) with ordinality as wanted (run_id, place)
cross join lateral (
    select tenant, run_id::text, id, number, name, payload, sender, arrived_at, consumed_by
    from messages
    where messages.tenant = $1 and messages.run_id = wanted.run_id
    offset 0
) as child
order by wanted.place, child.number
