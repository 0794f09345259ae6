-- Read the ids of workers by their numbers.
select workers.no, workers.id
from unnest($2::text::int[]) as asked (no)
join workers on workers.no = asked.no
where workers.tenant = $1
