-- Find those of the newest 20,000 runs before a run that have a text of lower-case ASCII in their id, names, error, labels or
-- input, in any case, newest first. Other bytes of payloads are escaped, because they need not be text.
select newest.id::text
from (
    select id, error
    from runs
    where tenant = $1 and id < $2::uuid and ($4::text[] is null or state = any($4::text[]))
    order by runs.id desc
    limit 20000) as newest
join run_details as details on details.tenant = $1 and details.run_id = newest.id
where position($5 in lower(concat_ws(
    e'\n', newest.id::text, details.workflow, details.business_key, details.correlation_id, details.created_by, newest.error,
    encode(details.input, 'escape'), encode(details.labels, 'escape')))) > 0
order by newest.id desc
limit $3
