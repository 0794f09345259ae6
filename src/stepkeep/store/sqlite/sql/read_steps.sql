-- Read all steps of a run.
select s.tenant, s.run_id, s.no, s.queue, s.priority, s.state, s.ready_at, s.due_at, s.fence, s.worker,
       s.claimed_at, s.attempts, s.losses, s.unmet, s.settled, s.category, s.error, s.note
from steps s
where s.tenant = ?1 and s.run_id = ?2
order by s.no
