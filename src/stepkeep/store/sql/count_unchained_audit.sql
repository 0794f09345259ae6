-- Count entries of the audit log outside of the chain, from a moment on, up to a number.
select count(*) from (
    select 1 from audit where tenant = $1 and seq is null and at >= $2 limit $3
) as beside
