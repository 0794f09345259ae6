-- Find those of the newest 20,000 runs before a run that have a text of lower-case ASCII in their id, names, error, labels or
-- input, in any case, newest first. Other bytes of payloads are escaped, because they need not be text. The two tables are
-- read one after the other in the order of their keys: a join would look up each of the 20,000.
with erred (id) as (
    select newest.id
    from (
        select id, state, error
        from runs
        where tenant = $1 and id < $2::uuid
        order by runs.id desc
        limit 20000) as newest
    where position($5 in lower(newest.error collate "C")) > 0 and ($4::text[] is null or newest.state = any($4::text[]))
    order by newest.id desc
    limit $3
),
worded (id) as (
    select newest.run_id
    from (
        select run_id, workflow, business_key, correlation_id, created_by, input, labels
        from run_details
        where tenant = $1 and run_id < $2::uuid
        order by run_details.run_id desc
        limit 20000) as newest
    where position($5 in lower(concat_ws(
        e'\n', newest.run_id::text, newest.workflow, newest.business_key, newest.correlation_id, newest.created_by,
        encode(newest.input, 'escape'), encode(newest.labels, 'escape')) collate "C")) > 0
        and ($4::text[] is null or exists (
            select from runs where runs.tenant = $1 and runs.id = newest.run_id and runs.state = any($4::text[])))
    order by newest.run_id desc
    limit $3
)
select found.id::text
from (select id from erred union select id from worded) as found
order by found.id desc
limit $3
