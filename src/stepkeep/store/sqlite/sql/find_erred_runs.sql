-- Find runs that have an error, in any or in certain states and perhaps of one workflow, newest first, between two ids.
-- Each was stopped by something, or is unfinished: indexes have both. ?5 is JSON: [state, ...], or null.
select id
from (
    select * from (
        select id
        from runs indexed by runs_troubled
        where tenant = ?1 and id < ?2 and id >= ?4 and cause is not null and error is not null
            and (?5 is null or state in (select value from json_each(?5)))
            and (?6 is null or exists (
                select 1 from run_details d where d.tenant = ?1 and d.run_id = runs.id and d.workflow = ?6))
        order by id desc
        limit ?3)
    union
    select * from (
        select id
        from runs indexed by runs_live
        where tenant = ?1 and id < ?2 and id >= ?4 and ended_at is null and error is not null
            and (?5 is null or state in (select value from json_each(?5)))
            and (?6 is null or exists (
                select 1 from run_details d where d.tenant = ?1 and d.run_id = runs.id and d.workflow = ?6))
        order by id desc
        limit ?3))
order by id desc
limit ?3
