-- Tell which of these messages are in the inbox already, consumed or not.
select wanted.place
from unnest($1::text::text[], $2::text::uuid[], $3::text[]) with ordinality as wanted (tenant, run_id, id, place)
cross join lateral (
    select
    from messages
    where messages.tenant = wanted.tenant and messages.run_id = wanted.run_id and messages.id = wanted.id
    offset 0
) as message
