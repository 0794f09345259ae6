-- Read one run with its details.
select runs.tenant, runs.id::text, runs.definition_id, runs.state, runs.priority, runs.seq, runs.head, runs.open,
    runs.moving, runs.leased, runs.failed, runs.undoing, runs.inbox, runs.cause, runs.policy, runs.category, runs.error,
    runs.rollback, runs.due_at, runs.started_at, runs.ended_at, runs.business_key, runs.moved_at,
    details.workflow, details.version, details.dialect, details.input, details.correlation_id, details.created_at,
    details.created_by, details.business_key, details.rerun_of::text, details.labels, details.asked_before, details.policy_revision
from runs
join run_details as details on details.tenant = runs.tenant and details.run_id = runs.id
where runs.tenant = $1 and runs.id = $2
