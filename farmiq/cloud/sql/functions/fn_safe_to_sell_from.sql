-- The first date on which animals of a batch may be sold: the latest end of the withdrawal of any
-- treatment or vaccination that counts; null without one. Of no animals, it is none. A record that
-- has the batch counts on whatever day; one whose batch was derived counts for that batch and for
-- the one that is in the barn on that day by now: too many days are safe, too few are not.
-- So what was posted counts before it is stored, and what a suspect clock dated was given, at the
-- latest, when it was stored.
create or replace function fn_safe_to_sell_from(tenant text, batch text) returns date
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  with of_batch as (
    select b.tenant_id, b.batch_id, b.farm_id, b.barn_id, b.placed_on,
      coalesce(b.closed_on, 'infinity'::date) as closed_on, f.timezone
    from public.batches b
    join public.farms f on f.tenant_id = b.tenant_id and f.farm_id = b.farm_id
    where b.tenant_id = fn_safe_to_sell_from.tenant and b.batch_id = fn_safe_to_sell_from.batch
  ), medicines as (
    select r.farm_id, r.device_id, r.record_id, r.withdrawal_days, r.occurred_at,
      case when r.clock_suspect then r.stored_at else r.occurred_at end as given_at,
      true as has_batch
    from of_batch b
    join public.counted_records r on r.tenant_id = b.tenant_id and r.batch_id = b.batch_id
    where r.record_type in ('treatment', 'vaccination') and r.value_number > 0
    union all
    select r.farm_id, r.device_id, r.record_id, r.withdrawal_days, r.occurred_at,
      case when r.clock_suspect then r.stored_at else r.occurred_at end, false
    from of_batch b
    join public.counted_records r on r.tenant_id = b.tenant_id and r.farm_id = b.farm_id
      and r.barn_id = b.barn_id and (r.batch_id is null or r.batch_derived)
    where r.record_type in ('treatment', 'vaccination') and r.value_number > 0
    union all
    select p.farm_id, null, p.record_id, p.withdrawal_days, p.occurred_at, p.occurred_at, true
    from of_batch b
    join public.posted_records p on p.tenant_id = b.tenant_id and p.batch_id = b.batch_id
    where p.record_type in ('treatment', 'vaccination') and p.value_number > 0
    union all
    select p.farm_id, null, p.record_id, p.withdrawal_days, p.occurred_at, p.occurred_at, false
    from of_batch b
    join public.posted_records p on p.tenant_id = b.tenant_id and p.farm_id = b.farm_id
      and p.barn_id = b.barn_id and (p.batch_id is null or p.batch_derived)
    where p.record_type in ('treatment', 'vaccination') and p.value_number > 0
  ), dated as (
    select m.*, (m.given_at at time zone b.timezone)::date as given_on, b.placed_on, b.closed_on,
      (m.occurred_at at time zone b.timezone)::date as noted_on
    from of_batch b cross join medicines m
    where not exists (select from public.posted_events q
      where q.tenant_id = b.tenant_id and q.event_type = 'barn.record.created'
        and q.replaces = m.record_id
        and (q.event ->> 'farm_id' = m.farm_id or m.device_id is null))
  )
  select max(d.given_on + coalesce(d.withdrawal_days, 0)) from dated d
  where d.has_batch or d.given_on between d.placed_on and d.closed_on
    or d.noted_on between d.placed_on and d.closed_on
$$;
revoke execute on function fn_safe_to_sell_from(text, text) from public;
grant execute on function fn_safe_to_sell_from(text, text) to authenticated, farmiq_service;
