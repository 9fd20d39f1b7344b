-- Refuses a batch whose days in a barn overlap with those of another batch there.
create or replace function fn_batches_one_at_a_time() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  other text;
begin
  -- One writer at a time for a barn, so that neither of two misses the other.
  perform from public.barns b
  where b.tenant_id = new.tenant_id and b.farm_id = new.farm_id and b.barn_id = new.barn_id
  for update;
  select b.batch_id into other from public.batches b
  where b.tenant_id = new.tenant_id and b.farm_id = new.farm_id and b.barn_id = new.barn_id
    and b.batch_id <> new.batch_id
    and daterange(b.placed_on, b.closed_on, '[]') && daterange(new.placed_on, new.closed_on, '[]')
  order by b.placed_on limit 1;
  if other is not null then
    raise exclusion_violation using
      constraint = 'batches_one_at_a_time',
      message = format('batch %s is in barn %s at that time', other, new.barn_id);
  end if;
  return new;
end $$;
revoke execute on function fn_batches_one_at_a_time() from public;
