-- Read what the ended attempts of runs cost, of those below them that they wait for, and of those that they were
-- migrated from.
with recursive tree (place, tenant, run_id) as (
    select wanted.place, wanted.tenant, wanted.run_id
    from unnest($1::text::text[], $2::text::uuid[]) with ordinality as wanted (tenant, run_id, place)
    union all
    select tree.place, tree.tenant, child.child_id
    from tree
    cross join lateral (
        select child_id
        from children
        where children.tenant = tree.tenant and children.run_id = tree.run_id and children.mode = 'awaited'
        union all
        select key::uuid
        from idempotency_keys k
        where k.tenant = tree.tenant and k.run_id = tree.run_id and k.operation = 'migrate'
        offset 0
    ) as child
)
select tree.place, attempt.cost
from tree
cross join lateral (
    select no, fence, cost
    from attempts
    where attempts.tenant = tree.tenant and attempts.run_id = tree.run_id
    offset 0
) as attempt
order by tree.place, tree.run_id, attempt.no, attempt.fence
