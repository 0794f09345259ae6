-- Count the runs of a tenant by state.
select state, count(*)
from runs
where tenant = $1
group by state
