-- The first date on which animals of a batch may be sold: the latest end of the withdrawal of any
-- treatment or vaccination that counts; null without one. Of no animals, it is none. A record that
-- has the batch counts on whatever day; one whose batch was derived counts for that batch and for
-- the one that is in the barn on that day by now: too many days are safe, too few are not.
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
    select (r.occurred_at at time zone b.timezone)::date as given_on, r.withdrawal_days
    from of_batch b
    join public.counted_records r on r.tenant_id = b.tenant_id and r.batch_id = b.batch_id
    where r.record_type in ('treatment', 'vaccination') and r.value_number > 0
      and not r.clock_suspect
    union all
    select (r.occurred_at at time zone b.timezone)::date, r.withdrawal_days
    from of_batch b
    join public.counted_records r on r.tenant_id = b.tenant_id and r.farm_id = b.farm_id
      and r.barn_id = b.barn_id and (r.batch_id is null or r.batch_derived)
    where r.record_type in ('treatment', 'vaccination') and r.value_number > 0
      and not r.clock_suspect
      and (r.occurred_at at time zone b.timezone)::date between b.placed_on and b.closed_on
  )
  select max(given_on + coalesce(withdrawal_days, 0)) from medicines
$$;
revoke execute on function fn_safe_to_sell_from(text, text) from public;
grant execute on function fn_safe_to_sell_from(text, text) to authenticated, farmiq_service;
