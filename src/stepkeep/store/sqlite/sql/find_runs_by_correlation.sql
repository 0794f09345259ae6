-- Find runs by correlation id, in any or in certain states and perhaps by workflow and business key, newest first,
-- between two ids. A run without a correlation id is its own (?9) and is in no index. ?5 is JSON: [state, ...], or null.
select d.run_id
from (
    select tenant, run_id, workflow, business_key
    from run_details indexed by run_details_correlation
    where tenant = ?1 and correlation_id = ?8 and correlation_id <> run_id
    union all
    select tenant, run_id, workflow, business_key
    from run_details
    where tenant = ?1 and run_id = ?9 and correlation_id = ?8
) d
cross join runs r on r.tenant = d.tenant and r.id = d.run_id
where d.run_id < ?2 and d.run_id >= ?4 and (?6 is null or d.workflow = ?6) and (?7 is null or d.business_key = ?7)
    and (?5 is null or r.state in (select value from json_each(?5)))
order by d.run_id desc
limit ?3
