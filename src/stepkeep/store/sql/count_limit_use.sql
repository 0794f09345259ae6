-- Count what is held under each limit of a tenant, how many of its keys are in use, and how many steps wait.
select used.name, sum(used.held), sum(used.keys), sum(used.waiting)
from (
    select name, sum(held) as held, count(*) as keys, 0 as waiting
    from limit_keys where tenant = $1 and held > 0 group by name
    union all
    select name, 0, 0, count(*) from limit_waits where tenant = $1 group by name
) as used
group by used.name
order by used.name
