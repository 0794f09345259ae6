-- Insert the details of new runs.
insert into run_details (
    tenant, run_id, workflow, version, dialect, input, correlation_id, created_at, created_by, business_key, rerun_of,
    labels, asked_before, policy_revision
) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
