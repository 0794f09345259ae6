-- Insert outbox entries. $1 holds all payloads.
insert into outbox (tenant, run_id, seq, number, name, payload, created_at)
select tenant, run_id, seq, number, name, substring($1::bytea from payload_from for payload_for), created_at
from unnest(
    $2::text::text[], $3::text::uuid[], $4::text::bigint[], $5::text::int[], $6::text[], $7::text::int[],
    $8::text::int[], $9::text::bigint[]
) as entry (
    tenant, run_id, seq, number, name, payload_from, payload_for, created_at)
