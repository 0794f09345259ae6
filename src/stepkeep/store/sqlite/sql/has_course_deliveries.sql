-- Tell whether any cursor is advanced by more than what its run emits.
select exists (select 1 from deliveries where takes > 1)
