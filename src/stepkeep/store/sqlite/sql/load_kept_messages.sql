-- Read the messages that are kept for business keys, in order. ?1 is JSON: [[tenant, key], ...].
select m.tenant, m.key, m.id, m.number, m.name, m.payload, m.sender, m.vouched_by, m.key_id, m.arrived_at, m.expires_at,
    m.forget_at, m.run_id
from json_each(?1) w
cross join mailbox m on m.tenant = w.value ->> 0 and m.key = w.value ->> 1
where m.payload is not null
order by m.tenant, m.key, m.number, m.id
