-- Tell how much is kept for business keys, and the last number. ?1 is JSON: [[tenant, key], ...].
select m.tenant, m.key, count(*), sum(length(m.payload)), max(m.number)
from json_each(?1) w
cross join mailbox m on m.tenant = w.value ->> 0 and m.key = w.value ->> 1
where m.payload is not null
group by m.tenant, m.key
