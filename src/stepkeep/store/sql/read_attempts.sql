-- Read all attempts of a run, by step and fence.
select tenant, run_id::text, no, fence, number, state, worker, started_at, ended_at, category, error, output, cost
from attempts
where tenant = $1 and run_id = $2
order by no, fence
