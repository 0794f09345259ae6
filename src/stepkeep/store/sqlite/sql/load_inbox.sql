-- Read the unconsumed messages of the runs wanted, in order of arrival. ?1 is JSON: [[tenant, run id], ...].
select m.tenant, m.run_id, m.id, m.number, m.name, m.payload, m.sender, m.arrived_at, m.consumed_by
from json_each(?1) w
cross join messages m on m.tenant = w.value ->> 0 and m.run_id = w.value ->> 1
where m.consumed_by is null
order by m.tenant, m.run_id, m.number
