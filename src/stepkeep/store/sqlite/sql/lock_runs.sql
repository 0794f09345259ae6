-- Read the wanted runs, and whether each is quarantined; the transaction itself is the lock. ?1 is JSON: [[tenant,
-- run id], ...].
select r.tenant, r.id, r.definition_id, r.state, r.priority, r.seq, r.head, r.open, r.moving, r.leased, r.failed,
       r.undoing, r.inbox, r.cause, r.policy, r.category, r.error, r.rollback, r.due_at, r.started_at, r.ended_at,
       r.business_key, r.moved_at,
       exists (select 1 from quarantine q where q.tenant = r.tenant and q.run_id = r.id and q.released_at is null)
from json_each(?1) w
cross join runs r on r.tenant = w.value ->> 0 and r.id = w.value ->> 1
