-- Read the ids of workers by their numbers. ?2 is JSON: [number, ...].
select no, id
from workers
where tenant = ?1 and no in (select value from json_each(?2))
