-- Read what the ended attempts of runs cost, of those below them that they wait for, and of those that they were
-- migrated from. ?1 is JSON: [[tenant, run id], ...].
with recursive tree (tenant, root, run_id) as (
    select w.value ->> 0, w.value ->> 1, w.value ->> 1
    from json_each(?1) w
    union all
    select tree.tenant, tree.root, c.child_id
    from tree
    cross join children c on c.tenant = tree.tenant and c.run_id = tree.run_id
    where c.mode = 'awaited'
    union all
    select tree.tenant, tree.root, k.key
    from tree
    cross join idempotency_keys k on k.tenant = tree.tenant and k.run_id = tree.run_id
    where k.operation = 'migrate'
)
select tree.tenant, tree.root, a.cost
from tree
cross join attempts a on a.tenant = tree.tenant and a.run_id = tree.run_id
order by tree.tenant, tree.root, a.run_id, a.no, a.fence
