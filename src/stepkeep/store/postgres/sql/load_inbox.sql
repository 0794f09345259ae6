-- Read the unconsumed messages of the wanted runs, in order of arrival.
select wanted.place, message.*
from unnest($1::text::text[], $2::text::uuid[]) with ordinality as wanted (tenant, run_id, place)
cross join lateral (
    select id, number, name, payload, sender, arrived_at, consumed_by
    from messages
    where messages.tenant = wanted.tenant and messages.run_id = wanted.run_id and messages.consumed_by is null
    offset 0
) as message
order by wanted.place, message.number
