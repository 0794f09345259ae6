-- Insert messages that were sent by business key, or replace kept and forgotten ones. A delivered one stays. $1 holds all
-- payloads.
insert into mailbox (tenant, key, id, number, name, payload, sender, vouched_by, key_id, arrived_at, expires_at, forget_at,
    run_id)
select tenant, key, id, number, name, substring($1::bytea from payload_from for payload_for), sender, vouched_by, key_id,
    arrived_at, expires_at, forget_at, run_id
from unnest(
    $2::text::text[], $3::text[], $4::text[], $5::text::bigint[], $6::text[], $7::text::int[], $8::text::int[], $9::text[],
    $10::text[], $11::text[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[], $15::text::uuid[]
) as message (
    tenant, key, id, number, name, payload_from, payload_for, sender, vouched_by, key_id, arrived_at, expires_at, forget_at,
    run_id)
order by message.tenant, message.key, message.id
on conflict (tenant, key, id) do update
set number = excluded.number, name = excluded.name, payload = excluded.payload, sender = excluded.sender,
    vouched_by = excluded.vouched_by, key_id = excluded.key_id, arrived_at = excluded.arrived_at,
    expires_at = excluded.expires_at, forget_at = excluded.forget_at, run_id = excluded.run_id
where mailbox.payload is not null or mailbox.forget_at <= excluded.arrived_at
returning 1
