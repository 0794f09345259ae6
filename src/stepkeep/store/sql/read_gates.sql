-- Read the gates of a run.
select tenant, run_id::text, no, activation, opened_at, level, due_at, shown, shown_digest, closed_at, outcome
from gates
where tenant = $1 and run_id = $2
order by no, activation
