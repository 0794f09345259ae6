-- Find triggers that a sweep must look at, the longest due first.
select tenant, name
from triggers
where due_at <= ?1
order by due_at
limit ?2
