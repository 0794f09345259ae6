-- Find triggers that a sweep must look at, the longest due first.
select tenant, name
from triggers
where due_at <= (select stepkeep_now() + $1::bigint)
order by due_at
limit $2
