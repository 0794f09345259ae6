-- Read the states of runs, with the definition, the error and the last journal entry of each; of one that has succeeded
-- also the output of a step, as `load_outputs` finds it. A number that no step has asks for no output.
-- ?1 is JSON: [[tenant, run id, no], ...].
select r.tenant, r.id, r.state, r.definition_id, r.error, r.seq, s.no, s.note, a.output
from json_each(?1) w
cross join runs r on r.tenant = w.value ->> 0 and r.id = w.value ->> 1
left join steps s
    on s.tenant = r.tenant and s.run_id = r.id and s.no = w.value ->> 2 and r.state = 'succeeded'
left join attempts a
    on a.tenant = s.tenant and a.run_id = s.run_id and a.no = s.no
    and a.fence = ifnull(s.note ->> 'checked', s.fence) and a.state = 'succeeded'
