-- Insert the cursors that new runs bring themselves. $1 holds all targets.
insert into deliveries (
    tenant, run_id, sink, takes, last, sent, sent_number, attempts, fence, ready_at, lease_until, holder, dead_at, error,
    target)
select tenant, run_id, sink, takes, last, sent, sent_number, attempts, fence, ready_at, lease_until, holder, dead_at,
    error, substring($1::bytea from target_from for target_for)
from unnest(
    $2::text::text[], $3::text::uuid[], $4::text[], $5::text::int[], $6::text::bigint[], $7::text::bigint[],
    $8::text::int[], $9::text::int[], $10::text::int[], $11::text::bigint[], $12::text::bigint[], $13::text[],
    $14::text::bigint[], $15::text[], $16::text::int[], $17::text::int[]
) as cursor (
    tenant, run_id, sink, takes, last, sent, sent_number, attempts, fence, ready_at, lease_until, holder, dead_at, error,
    target_from, target_for)
