-- Read by whose workers steps of runs were executed or are held now: the owners of their keys. ?1 is JSON:
-- [[tenant, run id], ...].
select a.tenant, a.run_id, a.no, k.owner
from json_each(?1) w
cross join attempts a on a.tenant = w.value ->> 0 and a.run_id = w.value ->> 1
cross join workers k on k.no = a.worker
where k.owner is not null
union
select s.tenant, s.run_id, s.no, k.owner
from json_each(?1) w
cross join steps s on s.tenant = w.value ->> 0 and s.run_id = w.value ->> 1 and s.worker is not null
cross join workers k on k.no = s.worker
where k.owner is not null
