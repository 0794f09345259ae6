-- Find children about which something is to be done, the longest due first.
select
    tenant, run_id, no, activation, child_id, workflow, version, mode, state, requested_at, started_at, recall,
    recalled_at, ended_at, outcome, category, error, todo, todo_at, undoes
from children
where todo is not null and todo_at <= ?1
    and not exists (
        select 1 from quarantine q
        where q.tenant = children.tenant and q.run_id = children.run_id and q.released_at is null)
order by todo_at
limit ?2
