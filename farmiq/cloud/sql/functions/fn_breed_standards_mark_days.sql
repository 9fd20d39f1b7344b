-- A breed standard that is added, changed or removed marks the figures of the batches of its breed.
create or replace function fn_breed_standards_mark_days() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  changed public.breed_standards := coalesce(new, old);
begin
  insert into public.analytics_dirty_days (tenant_id, batch_id, first_date, is_figures)
  select b.tenant_id, b.batch_id, b.placed_on, true from public.batches b
  where b.tenant_id = changed.tenant_id and lower(b.species) = lower(changed.species)
    and lower(b.breed) = lower(changed.breed) and changed.sex in (b.sex, 'mixed');
  return null;
end $$;
revoke execute on function fn_breed_standards_mark_days() from public;
