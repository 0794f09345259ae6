-- Insert steps: the whole plan of a new run, or the hooks and checks that an old one has come to need.
insert into steps (
    tenant, run_id, no, queue, priority, state, ready_at, due_at, fence, worker, claimed_at, attempts, losses, unmet,
    settled, category, error, note)
select *
from unnest(
    $1::text::text[], $2::text::uuid[], $3::text::int[], $4::text::int[], $5::text::int[], $6::text::text[],
    $7::text::bigint[], $8::text::bigint[], $9::text::int[], $10::text::int[], $11::text::bigint[],
    $12::text::int[], $13::text::int[], $14::text::int[], $15::text::bigint[], $16::text::text[], $17::text[],
    $18::text[]
)
