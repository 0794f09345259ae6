-- Delete what is left of the resources of runs that are deleted.
delete from resource_holds
using unnest($2::text::uuid[]) as gone (run_id)
where resource_holds.tenant = $1 and resource_holds.run_id = gone.run_id
