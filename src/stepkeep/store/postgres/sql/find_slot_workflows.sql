-- Find the workflows of which a run waits for a slot: one look at the index for each, however many runs wait.
with recursive heads (tenant, workflow) as (
    (select tenant, workflow from slots where granted_at is null order by tenant, workflow limit 1)
    union all
    select next.tenant, next.workflow
    from heads, lateral (
        select slots.tenant, slots.workflow from slots
        where slots.granted_at is null and (slots.tenant, slots.workflow) > (heads.tenant, heads.workflow)
        order by slots.tenant, slots.workflow
        limit 1
    ) as next
)
select tenant, workflow from heads
limit $1::int
