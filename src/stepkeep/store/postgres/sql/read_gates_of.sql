-- Read the gates of runs, in the given order.
select child.*
from unnest($2::text::uuid[]) with ordinality as wanted (run_id, place)
cross join lateral (
    select tenant, run_id::text, no, activation, opened_at, level, due_at, shown, shown_digest, closed_at,
        outcome
    from gates
    where gates.tenant = $1 and gates.run_id = wanted.run_id
    offset 0
) as child
order by wanted.place, child.no, child.activation
