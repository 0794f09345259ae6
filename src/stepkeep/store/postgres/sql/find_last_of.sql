-- Count the newest runs of a tenant between two ids, up to a limit, and find the last of them.
select count(*), min(newest.id::text)
from (
    select id
    from runs
    where tenant = $1 and id < $2::uuid and id >= $4::uuid
    order by runs.id desc
    limit $3) as newest
