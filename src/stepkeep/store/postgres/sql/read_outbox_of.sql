-- Read the outboxes of runs, in the given order.
select child.*
from unnest($2::text::uuid[]) with ordinality as wanted (run_id, place)
cross join lateral (
    select tenant, run_id::text, seq, number, name, payload, created_at
    from outbox
    where outbox.tenant = $1 and outbox.run_id = wanted.run_id
    offset 0
) as child
order by wanted.place, child.seq, child.number
