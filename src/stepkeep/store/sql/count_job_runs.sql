-- Count the runs of jobs by what became of them. $2 is JSON: [job id, ...].
select job_id, state, count(*)
from job_runs
where tenant = $1 and job_id in (select json_array_elements_text($2::text::json))
group by job_id, state
