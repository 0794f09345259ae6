-- Tell whether a tenant other than this one has published anything.
select exists (select 1 from definitions where tenant < $1)
    or exists (select 1 from definitions where tenant > $1)
