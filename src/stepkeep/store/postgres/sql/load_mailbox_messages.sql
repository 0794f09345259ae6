-- Read messages that were sent by business key, by their ids.
select message.*
from unnest($1::text[], $2::text[], $3::text[]) as wanted (tenant, key, id)
cross join lateral (
    select tenant, key, id, number, name, payload, sender, vouched_by, key_id, arrived_at, expires_at, forget_at,
        run_id::text
    from mailbox
    where mailbox.tenant = wanted.tenant and mailbox.key = wanted.key and mailbox.id = wanted.id
    offset 0
) as message
