-- A batch that is added, changed or removed marks all its days, those before the change too.
create or replace function fn_batches_mark_days() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'UPDATE' and (to_jsonb(old) - '{changed_at,target_weight_kg,target_on}'::text[])
    = (to_jsonb(new) - '{changed_at,target_weight_kg,target_on}'::text[]) then
    return null;
  end if;
  if tg_op <> 'INSERT' then
    insert into public.analytics_dirty_days (tenant_id, batch_id, first_date)
    values (old.tenant_id, old.batch_id, old.placed_on);
  end if;
  if tg_op <> 'DELETE' then
    insert into public.analytics_dirty_days (tenant_id, batch_id, first_date)
    values (new.tenant_id, new.batch_id, new.placed_on);
  end if;
  return null;
end $$;
revoke execute on function fn_batches_mark_days() from public;
