-- Read the runs above children that wait for them, with their definitions, the nearest first. ?1 is JSON:
-- [[tenant, run id], ...].
with recursive above (tenant, child, run_id, level) as (
    select c.tenant, w.value ->> 1, c.run_id, 1
    from json_each(?1) w
    cross join children c on c.tenant = w.value ->> 0 and c.child_id = w.value ->> 1
    where c.mode = 'awaited'
    union all
    select c.tenant, above.child, c.run_id, above.level + 1
    from above
    cross join children c on c.tenant = above.tenant and c.child_id = above.run_id
    where c.mode = 'awaited'
)
select above.tenant, above.child, r.id, r.definition_id
from above
cross join runs r on r.tenant = above.tenant and r.id = above.run_id
order by above.tenant, above.child, above.level
