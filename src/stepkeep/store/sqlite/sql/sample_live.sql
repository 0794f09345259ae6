-- Read some of the unfinished runs of a tenant: those of the newest, up to a limit, whose ids end in a byte below a
-- number. The end of an id is random. The index alone chooses them.
select r.id, r.definition_id, r.state, r.category, r.started_at, r.ended_at
from (select id as id from runs indexed by runs_live where tenant = ?1 and ended_at is null order by id desc limit ?3) newest
cross join runs r on r.tenant = ?1 and r.id = newest.id
where 16 * instr('123456789abcdef', substr(newest.id, -2, 1)) + instr('123456789abcdef', substr(newest.id, -1)) < ?2
order by r.id desc
