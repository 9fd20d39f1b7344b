-- A batch that is added, changed or removed marks all its days, those before the change too. What was
-- derived as this batch's in a barn may now be of another batch there (fn_batch_of), or no more.
create or replace function fn_batches_mark_days() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  changed public.batches := coalesce(new, old);
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
  insert into public.analytics_dirty_days (tenant_id, batch_id, first_date)
  select distinct c.tenant_id, c.batch_id, c.placed_on
  from (
    select e.farm_id, e.barn_id, e.occurred_at from public.barn_events e
    where e.tenant_id = changed.tenant_id and e.payload ->> 'batch_id' = changed.batch_id
      and e.payload -> 'batch_derived' = 'true'
    union all
    select e.farm_id, e.barn_id, e.occurred_at from public.feed_events e
    where e.tenant_id = changed.tenant_id and e.payload ->> 'batch_id' = changed.batch_id
      and e.payload -> 'batch_derived' = 'true'
    union all
    select s.farm_id, s.barn_id, s.start_at from public.weight_sessions s
    where s.tenant_id = changed.tenant_id and s.batch_id = changed.batch_id and s.batch_derived) e
    join public.batches c
      on c.tenant_id = changed.tenant_id and c.farm_id = e.farm_id and c.barn_id = e.barn_id
      and c.batch_id <> changed.batch_id
      and c.placed_on <= (e.occurred_at + interval '1 day')::date
      and coalesce(c.closed_on, 'infinity') >= (e.occurred_at - interval '1 day')::date;
  return null;
end $$;
revoke execute on function fn_batches_mark_days() from public;
