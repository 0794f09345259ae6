-- Delete runs. ?2 is JSON: [run id, ...].
delete from runs
where tenant = ?1 and id in (select value from json_each(?2))
