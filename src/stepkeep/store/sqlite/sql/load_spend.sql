-- Sum what attempts of the tenant ?1 cost that ended after ?2, by workflow.
select d.workflow, total(cast(a.cost as text) ->> '$.usd'), total(cast(a.cost as text) ->> '$.tokens'), count(*)
from attempts a
cross join run_details d on d.tenant = a.tenant and d.run_id = a.run_id
where a.tenant = ?1 and a.ended_at > ?2 and a.cost is not null
group by d.workflow
order by d.workflow
