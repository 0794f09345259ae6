-- Insert messages into the inboxes of runs; a duplicate fails the transaction. $1 holds all payloads.
insert into messages (tenant, run_id, id, number, name, payload, sender, arrived_at, consumed_by)
select tenant, run_id, id, number, name, substring($1::bytea from payload_from for payload_for), sender, arrived_at,
    consumed_by
from unnest(
    $2::text::text[], $3::text::uuid[], $4::text[], $5::text::bigint[], $6::text[], $7::text::int[], $8::text::int[],
    $9::text[], $10::text::bigint[], $11::text::int[]
) as message (
    tenant, run_id, id, number, name, payload_from, payload_for, sender, arrived_at, consumed_by)
