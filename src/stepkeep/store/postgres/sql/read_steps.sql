-- Read all steps of a run.
select no, queue, priority, state, ready_at, due_at, fence, worker, claimed_at, attempts, losses, unmet, settled,
    category, error, note
from steps
where tenant = $1 and run_id = $2
order by no
