-- Read the clock that judges leases and timers.
select stepkeep_now() + $1::bigint
