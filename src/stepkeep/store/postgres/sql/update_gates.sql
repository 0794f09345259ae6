-- Change the level and the deadline of open gates, or close them.
update gates
set level = change.level, due_at = change.due_at, closed_at = change.closed_at, outcome = change.outcome
from unnest(
    $1::text::text[], $2::text::uuid[], $3::text::int[], $4::text::bigint[], $5::text::int[], $6::text::bigint[],
    $7::text::bigint[], $8::text[]
) as change (tenant, run_id, no, activation, level, due_at, closed_at, outcome)
where gates.tenant = change.tenant and gates.run_id = change.run_id and gates.no = change.no
    and gates.activation = change.activation
