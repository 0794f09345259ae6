-- Find runs between two ids with these words anywhere, and these labels, newest first. Words are lower case in ASCII; labels
-- are written as they are stored. Bytes of payloads are escaped, because they need not be text. The two tables are read one
-- after the other in the order of their keys: a join would look up each run.
with erred (id) as (
    select id
    from runs
    where tenant = $1 and id < $2::uuid and id >= $4::uuid and position($5 in lower(error collate "C")) > 0
)
select details.run_id::text
from run_details as details
where details.tenant = $1 and details.run_id < $2::uuid and details.run_id >= $4::uuid
    and ($5::text is null
        or position($5 in lower(concat_ws(
            e'\n', details.run_id::text, details.workflow, details.business_key, details.correlation_id,
            details.created_by) collate "C")) > 0
        or position((select encode(convert_to($5, 'UTF8'), 'escape')) in lower(concat_ws(
            e'\n', encode(details.input, 'escape'), encode(details.labels, 'escape')) collate "C")) > 0
        or details.run_id in (select id from erred))
    and ($6::text[] = '{}' or not exists (
        select from unnest($6::text[]) as wanted (label)
        where coalesce(position(convert_to(wanted.label, 'UTF8') in details.labels), 0) = 0))
order by details.run_id desc
limit $3
