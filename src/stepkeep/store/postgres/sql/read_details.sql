-- Read the details of runs.
select details.tenant, details.run_id::text, details.workflow, details.version, details.dialect, details.input,
    details.correlation_id, details.created_at, details.created_by, details.business_key, details.rerun_of::text,
    details.labels, details.asked_before, details.policy_revision
from unnest($1::text[], $2::text::uuid[]) as wanted (tenant, run_id)
join run_details as details on details.tenant = wanted.tenant and details.run_id = wanted.run_id
