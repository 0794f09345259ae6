-- Read runs with their details, in the given order. ?2 is JSON: [run id, ...].
select r.tenant, r.id, r.definition_id, r.state, r.priority, r.seq, r.head, r.open, r.moving, r.leased, r.failed,
       r.undoing, r.inbox, r.cause, r.policy, r.category, r.error, r.rollback, r.due_at, r.started_at, r.ended_at,
       r.business_key, r.moved_at,
       d.workflow, d.version, d.dialect, d.input, d.correlation_id, d.created_at, d.created_by, d.business_key,
       d.rerun_of, d.labels, d.asked_before, d.policy_revision
from json_each(?2) w
cross join runs r on r.tenant = ?1 and r.id = w.value
cross join run_details d on d.tenant = r.tenant and d.run_id = r.id
order by w.key
