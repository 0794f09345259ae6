-- Find one line that is to be looked at, if there is any.
select 1 from limit_lines where due_at <= (select stepkeep_now() + $1::bigint) limit 1
