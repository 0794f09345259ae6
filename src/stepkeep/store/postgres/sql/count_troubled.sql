-- Count the newest stopped runs of a tenant by category: those after an id, up to a limit in all.
select troubled.state, troubled.category, count(*)
from (
    select state, category
    from runs
    where tenant = $1 and id > $2::uuid and cause is not null
    order by runs.id desc
    limit $3::int) as troubled
group by troubled.state, troubled.category
