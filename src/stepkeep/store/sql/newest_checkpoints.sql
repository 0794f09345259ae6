-- Read the newest checkpoints of each step of a run, in the order of recording.
select c.tenant, c.run_id::text, c.no, c.name, c.fence, c.seq, c.at, c.value
from (
    select tenant, run_id, no, name, row_number() over (partition by no order by seq desc, name desc) as place
    from checkpoints
    where tenant = $1 and run_id = $2
) as newest
join checkpoints as c
    on c.tenant = newest.tenant and c.run_id = newest.run_id and c.no = newest.no and c.name = newest.name
where newest.place <= $3
order by c.no, c.seq, c.name
