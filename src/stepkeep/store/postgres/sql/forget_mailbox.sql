-- Delete messages that were sent by business key and are to be forgotten, oldest first.
delete from mailbox
where ctid = any(array(
    select ctid
    from mailbox
    where forget_at <= (select stepkeep_now() + $1::bigint)
    order by forget_at
    limit $2::int
    for update skip locked
))
