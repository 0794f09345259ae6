-- Read the claimable steps with the lowest numbers of one run, as many as it has shares. ?4 is JSON: [queue, ...].
select tenant, run_id, no, queue, priority, state, ready_at, due_at, fence, worker, claimed_at, attempts, losses, unmet,
       settled, category, error, note
from steps indexed by steps_ready
where tenant = ?1 and run_id = ?2 and ready_at <= ?3 and queue in (select value from json_each(?4))
order by no
limit ?5
