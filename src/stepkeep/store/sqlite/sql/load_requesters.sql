-- Read the people who asked for runs, and for the runs that these repeat. ?1 is JSON: [[tenant, run id], ...].
with recursive asked (tenant, run_id, created_by, rerun_of) as (
    select d.tenant, d.run_id, d.created_by, d.rerun_of
    from json_each(?1) w
    cross join run_details d on d.tenant = w.value ->> 0 and d.run_id = w.value ->> 1
    union
    select asked.tenant, asked.run_id, d.created_by, d.rerun_of
    from asked
    cross join run_details d on d.tenant = asked.tenant and d.run_id = asked.rerun_of
)
select tenant, run_id, created_by from asked
