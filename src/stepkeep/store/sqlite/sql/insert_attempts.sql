-- Insert attempts that ended.
insert into attempts (
    tenant, run_id, no, fence, number, state, worker, started_at, ended_at, category, error, output, cost
) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
