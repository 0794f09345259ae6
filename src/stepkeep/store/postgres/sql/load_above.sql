-- Read the runs above children that wait for them, with their definitions, the nearest first.
with recursive above (place, tenant, run_id, level) as (
    select wanted.place, wanted.tenant, parent.run_id, 1
    from unnest($1::text::text[], $2::text::uuid[]) with ordinality as wanted (tenant, run_id, place)
    cross join lateral (
        select run_id
        from children
        where children.tenant = wanted.tenant and children.child_id = wanted.run_id and children.mode = 'awaited'
        offset 0
    ) as parent
    union all
    select above.place, above.tenant, parent.run_id, above.level + 1
    from above
    cross join lateral (
        select run_id
        from children
        where children.tenant = above.tenant and children.child_id = above.run_id and children.mode = 'awaited'
        offset 0
    ) as parent
)
select above.place, run.id::text, run.definition_id
from above
cross join lateral (
    select id, definition_id
    from runs
    where runs.tenant = above.tenant and runs.id = above.run_id
    offset 0
) as run
order by above.place, above.level
