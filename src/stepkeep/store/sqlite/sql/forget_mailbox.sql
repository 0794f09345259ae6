-- Delete messages that were sent by business key and are to be forgotten, oldest first.
delete from mailbox
where (tenant, key, id) in (
    select m.tenant, m.key, m.id
    from mailbox m
    where m.forget_at <= ?1
    order by m.forget_at
    limit ?2)
