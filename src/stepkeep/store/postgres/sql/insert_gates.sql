-- Record that gates opened. $1 holds all that was shown.
insert into gates (
    tenant, run_id, no, activation, opened_at, level, due_at, shown, shown_digest, closed_at, outcome)
select tenant, run_id, no, activation, opened_at, level, due_at,
    substring($1::bytea from shown_from for shown_for), shown_digest, closed_at, outcome
from unnest(
    $2::text::text[], $3::text::uuid[], $4::text::int[], $5::text::bigint[], $6::text::bigint[], $7::text::int[],
    $8::text::bigint[], $9::text::int[], $10::text::int[], $11::text[], $12::text::bigint[], $13::text[]
) as gate (
    tenant, run_id, no, activation, opened_at, level, due_at, shown_from, shown_for, shown_digest, closed_at, outcome)
