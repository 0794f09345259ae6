-- Read outputs of steps: the note that may hold one, and the output of the attempt that succeeded under the current
-- fence. ?1 is JSON: [[tenant, run id, no], ...].
select s.tenant, s.run_id, s.no, s.note, a.output
from json_each(?1) w
cross join steps s on s.tenant = w.value ->> 0 and s.run_id = w.value ->> 1 and s.no = w.value ->> 2
left join attempts a
    on a.tenant = s.tenant and a.run_id = s.run_id and a.no = s.no
    and a.fence = ifnull(s.note ->> 'checked', s.fence) and a.state = 'succeeded'
