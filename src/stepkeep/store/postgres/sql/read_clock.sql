-- Read the database clock.
select stepkeep_now() + $1::bigint
