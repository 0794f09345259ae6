-- Find open gates of a tenant, in the order of run and step, after a given one.
select tenant, run_id::text, no, activation, opened_at, level, due_at, shown, shown_digest, closed_at, outcome
from gates
where tenant = $1 and closed_at is null and (run_id, no) > ($2::uuid, $3::int)
order by gates.run_id, no
limit $4
