-- Find runs between two ids with these words anywhere, and these labels, newest first. Words
-- are lower case in ASCII; labels are written as they are stored. ?6 is JSON: [label, ...].
select r.id
from runs r
cross join run_details d on d.tenant = r.tenant and d.run_id = r.id
where r.tenant = ?1 and r.id < ?2 and r.id >= ?4 and (?5 is null or instr(lower(
        r.id || x'0a' || d.workflow || x'0a' || ifnull(d.business_key, '') || x'0a' || d.correlation_id || x'0a'
        || d.created_by || x'0a' || ifnull(r.error, '') || x'0a' || cast(d.input as text) || x'0a'
        || ifnull(cast(d.labels as text), '')), ?5) > 0)
    and not exists (
        select 1 from json_each(?6) wanted where ifnull(instr(cast(d.labels as text), wanted.value), 0) = 0)
order by r.id desc
limit ?3
