-- Read the decisions of runs, in the given order.
select child.*
from unnest($2::text::uuid[]) with ordinality as wanted (run_id, place)
cross join lateral (
    select tenant, run_id::text, no, activation, person, on_behalf_of, level, decision, at, comment, evidence,
        key_id, delegation_id, held_roles, vouched_by, shown_digest
    from decisions
    where decisions.tenant = $1 and decisions.run_id = wanted.run_id
    offset 0
) as child
order by wanted.place, child.no, child.activation, child.at, child.person
