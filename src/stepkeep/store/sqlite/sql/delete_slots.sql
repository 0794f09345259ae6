-- Delete the slots of runs that are deleted. ?2 is JSON: [run id, ...].
delete from slots
where tenant = ?1 and run_id in (select value from json_each(?2))
