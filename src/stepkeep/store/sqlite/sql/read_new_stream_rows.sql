-- Read rows of streams of several runs, each after one, in order.
select t.tenant, t.run_id, t.seq, t.no, t.name, t.fence, t.start, t.count, t.total, t.at, t.after_fence,
    t.after_place, t.body
from json_each(?2) as wanted
cross join stream_rows as t on t.tenant = ?1 and t.run_id = wanted.value->>0 and t.seq > wanted.value->>1
    and t.seq <= (wanted.value->>1) + ?3
order by t.run_id, t.seq
