-- Find those of some runs with these words in their error, these words anywhere, these labels, and where asked no parent, in the
-- given order.
-- Words are lower case in ASCII; labels are written as they are stored. ?2 is JSON: [run id, ...]; ?5 is JSON: [label, ...].
select r.id
from json_each(?2) asked
cross join runs r on r.tenant = ?1 and r.id = asked.value
cross join run_details d on d.tenant = ?1 and d.run_id = asked.value
where (?3 is null or instr(lower(r.error), ?3) > 0)
    and (?4 is null or instr(lower(
        r.id || x'0a' || d.workflow || x'0a' || ifnull(d.business_key, '') || x'0a' || d.correlation_id || x'0a'
        || d.created_by || x'0a' || ifnull(r.error, '') || x'0a' || cast(d.input as text) || x'0a'
        || ifnull(cast(d.labels as text), '')), ?4) > 0)
    and not exists (
        select 1 from json_each(?5) wanted where ifnull(instr(cast(d.labels as text), wanted.value), 0) = 0)
    and (not ?6 or not exists (select 1 from children c where c.tenant = ?1 and c.child_id = asked.value))
order by asked.key
