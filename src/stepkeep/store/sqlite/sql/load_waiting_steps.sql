-- Read the steps that wait for people or messages. ?1 is JSON: [[tenant, run id], ...].
select s.tenant, s.run_id, s.no, s.queue, s.priority, s.state, s.ready_at, s.due_at, s.fence, s.worker,
       s.claimed_at, s.attempts, s.losses, s.unmet, s.settled, s.category, s.error, s.note
from json_each(?1) w
cross join steps s on s.tenant = w.value ->> 0 and s.run_id = w.value ->> 1
where s.state in ('awaiting_approval', 'awaiting_event', 'awaiting_completion', 'awaiting_children')
