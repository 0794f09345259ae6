-- Read the people who asked for runs, and for the runs that these repeat.
with recursive asked (place, tenant, created_by, rerun_of) as (
    select wanted.place, wanted.tenant, detail.created_by, detail.rerun_of
    from unnest($1::text::text[], $2::text::uuid[]) with ordinality as wanted (tenant, run_id, place)
    cross join lateral (
        select created_by, rerun_of
        from run_details
        where run_details.tenant = wanted.tenant and run_details.run_id = wanted.run_id
        offset 0
    ) as detail
    union
    select asked.place, asked.tenant, detail.created_by, detail.rerun_of
    from asked
    cross join lateral (
        select created_by, rerun_of
        from run_details
        where run_details.tenant = asked.tenant and run_details.run_id = asked.rerun_of
        offset 0
    ) as detail
)
select place, created_by from asked
