-- Find messages that are kept for one business key, in the order of arrival, after a given one.
select tenant, key, id, number, name, payload, sender, vouched_by, key_id, arrived_at, expires_at, forget_at, run_id::text
from mailbox
where tenant = $1 and key = $2 and payload is not null and (number, id) > ($3::bigint, $4::text)
order by number, id
limit $5::int
