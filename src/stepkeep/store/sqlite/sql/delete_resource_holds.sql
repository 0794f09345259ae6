-- Delete what is left of the resources of runs that are deleted. ?2 is JSON: [run id, ...].
delete from resource_holds
where tenant = ?1 and run_id in (select value from json_each(?2))
