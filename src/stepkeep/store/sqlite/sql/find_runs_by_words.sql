-- Find those of the newest 20,000 runs before a run that have a text of lower-case ASCII in their id, names, error, labels or
-- input, in any case, newest first. ?4 is JSON: [state, ...], or null.
select newest.id
from (
    select id, error
    from runs
    where tenant = ?1 and id < ?2 and (?4 is null or state in (select value from json_each(?4)))
    order by id desc
    limit 20000) as newest
cross join run_details as details
where details.tenant = ?1 and details.run_id = newest.id and instr(lower(
    newest.id || x'0a' || details.workflow || x'0a' || ifnull(details.business_key, '') || x'0a' || details.correlation_id
    || x'0a' || details.created_by || x'0a' || ifnull(newest.error, '') || x'0a' || cast(details.input as text)
    || x'0a' || ifnull(cast(details.labels as text), '')), ?5) > 0
order by newest.id desc
limit ?3
