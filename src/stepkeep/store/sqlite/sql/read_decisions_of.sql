-- Read the decisions of runs, in the given order. ?2 is JSON: [run id, ...].
select t.tenant, t.run_id, t.no, t.activation, t.person, t.on_behalf_of, t.level, t.decision, t.at, t.comment,
    t.evidence, t.key_id, t.delegation_id, t.held_roles, t.vouched_by, t.shown_digest
from json_each(?2) w
cross join decisions t on t.tenant = ?1 and t.run_id = w.value
order by w.key, t.no, t.activation, t.at, t.person
