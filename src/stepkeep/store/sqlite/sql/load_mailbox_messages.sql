-- Read messages that were sent by business key, by their ids. ?1 is JSON: [[tenant, key, message id], ...].
select m.tenant, m.key, m.id, m.number, m.name, m.payload, m.sender, m.vouched_by, m.key_id, m.arrived_at, m.expires_at,
    m.forget_at, m.run_id
from json_each(?1) w
cross join mailbox m on m.tenant = w.value ->> 0 and m.key = w.value ->> 1 and m.id = w.value ->> 2
