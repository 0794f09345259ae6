-- Lock the people of a tenant to the end of the transaction, against decisions that share them, and read the clock after
-- that.
select pg_advisory_xact_lock(hashtextextended(format('people %s %L', current_schema(), $1::text), 1701)),
    stepkeep_now() + $2::bigint
