-- Tell whether any trigger is about the ends of runs.
select exists (select 1 from triggers where kind = 'ended' and removed_at is null)
