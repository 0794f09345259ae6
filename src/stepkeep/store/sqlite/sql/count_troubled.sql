-- Count the newest stopped runs of a tenant by category: those after an id, up to a limit in all.
select state, category, count(*)
from (
    select state, category
    from runs indexed by runs_troubled
    where tenant = ?1 and id > ?2 and cause is not null
    order by id desc
    limit ?3)
group by state, category
