-- With another zone a farm has other days: all days of its batches are marked.
create or replace function fn_farms_mark_days() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if new.timezone <> old.timezone then
    insert into public.analytics_dirty_days (tenant_id, batch_id, first_date)
    select b.tenant_id, b.batch_id, b.placed_on from public.batches b
    where b.tenant_id = new.tenant_id and b.farm_id = new.farm_id;
  end if;
  return null;
end $$;
revoke execute on function fn_farms_mark_days() from public;
