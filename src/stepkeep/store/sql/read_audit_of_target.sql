-- Read what was asked for about one thing, newest first, before an entry.
select tenant, id, at, actor, key, vouched_by, operation, target, outcome, code, request_id, address
from audit
where tenant = $1 and (at, id) < ($2, $3) and at >= $4
    and ($5::text is null or operation = $5) and ($6::text is null or outcome = $6)
    and ($7::text is null or key = $7) and target = $9 and ($10::text is null or actor = $10)
order by at desc, id desc
limit $8
