-- Find the workflows of which a run waits for a slot: one look at the index for each, however many runs wait.
with recursive heads (place) as (
    select * from (
        select rowid from slots where granted_at is null order by tenant, workflow limit 1)
    union all
    select (
        select next.rowid from slots as next
        where next.granted_at is null
            and (next.tenant, next.workflow) > (
                select before.tenant, before.workflow from slots as before where before.rowid = heads.place)
        order by next.tenant, next.workflow
        limit 1)
    from heads
    where heads.place is not null
)
select slots.tenant, slots.workflow
from heads join slots on slots.rowid = heads.place
limit ?1
