-- Save an item: at a place, or without one ($4) behind the last of its key. With $6, one that is there already stays.
insert into conversation_items (tenant, conversation, key, ordinal, at, value)
select $1, $2, $3,
    coalesce(
        $4::bigint,
        (select max(i.ordinal) + 1 from conversation_items i where i.tenant = $1 and i.conversation = $2 and i.key = $3),
        0
    ),
    (select stepkeep_now() + $7::bigint), $5::bytea
where true
on conflict (tenant, conversation, key, ordinal) do update set value = excluded.value, at = excluded.at
where not $6::boolean
returning ordinal
