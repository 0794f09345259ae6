-- Read entries of a tenant in the order of transactions, after a position; none that an older transaction may precede.
select journal.tenant, journal.run_id::text, journal.seq, journal.at, journal.body, journal.hash, journal.xact,
    coalesce(before.xact > journal.xact, false) as overtakes
from journal
left join lateral (
    select earlier.xact
    from journal earlier
    where earlier.tenant = journal.tenant and earlier.run_id = journal.run_id and earlier.seq = journal.seq - 1
) before on true
where journal.tenant = $1
    and journal.xact >= $2
    and (journal.xact, journal.run_id, journal.seq) > ($2, $3::text::uuid, $4)
    and journal.xact < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
order by journal.xact, journal.run_id, journal.seq
limit $5
