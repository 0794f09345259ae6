-- Read some of the runs of a tenant after an id: those of the newest, up to a limit, whose ids end in a byte below a
-- number. The end of an id is random. The index alone chooses them.
select r.id, r.definition_id, r.state, r.category, r.started_at, r.ended_at
from (select run_id as id from run_details where tenant = ?1 and run_id > ?4 order by run_id desc limit ?3) newest
cross join runs r on r.tenant = ?1 and r.id = newest.id
where 16 * instr('123456789abcdef', substr(newest.id, -2, 1)) + instr('123456789abcdef', substr(newest.id, -1)) < ?2
order by r.id desc
