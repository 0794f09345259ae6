-- Read the messages that are kept for business keys, in order.
select message.*
from unnest($1::text[], $2::text[]) as wanted (tenant, key)
cross join lateral (
    select tenant, key, id, number, name, payload, sender, vouched_by, key_id, arrived_at, expires_at, forget_at,
        run_id::text
    from mailbox
    where mailbox.tenant = wanted.tenant and mailbox.key = wanted.key and mailbox.payload is not null
    offset 0
) as message
order by message.tenant, message.key, message.number, message.id
