-- Find those of some runs with these words in their error, these words anywhere, these labels, and where asked no parent, in the
-- given order.
-- Words are lower case in ASCII; labels are written as they are stored. Bytes of payloads are escaped, because they need
-- not be text.
select runs.id::text
from unnest($2::text::uuid[]) with ordinality as asked (run_id, place)
cross join lateral (
    select id, error
    from runs
    where runs.tenant = $1 and runs.id = asked.run_id
    offset 0) as runs
cross join lateral (
    select run_id, workflow, business_key, correlation_id, created_by, input, labels
    from run_details
    where run_details.tenant = $1 and run_details.run_id = asked.run_id
    offset 0) as details
where ($3::text is null or position($3 in lower(runs.error collate "C")) > 0)
    and ($4::text is null
        or position($4 in lower(concat_ws(
            e'\n', details.run_id::text, details.workflow, details.business_key, details.correlation_id,
            details.created_by, runs.error) collate "C")) > 0
        or position((select encode(convert_to($4, 'UTF8'), 'escape')) in lower(concat_ws(
            e'\n', encode(details.input, 'escape'), encode(details.labels, 'escape')) collate "C")) > 0)
    and ($5::text[] = '{}' or not exists (
        select from unnest($5::text[]) as wanted (label)
        where coalesce(position(convert_to(wanted.label, 'UTF8') in details.labels), 0) = 0))
    and (not $6::boolean or not exists (
        select from children where children.tenant = $1 and children.child_id = asked.run_id))
order by asked.place
