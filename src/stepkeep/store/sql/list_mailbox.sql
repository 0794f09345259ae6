-- Find messages that are kept, in the order of business key and arrival, after a given one.
select tenant, key, id, number, name, payload, sender, vouched_by, key_id, arrived_at, expires_at, forget_at, run_id::text
from mailbox
where tenant = $1 and payload is not null and (key, number, id) > ($2::text, $3::bigint, $4::text)
order by mailbox.key, number, id
limit $5::int
