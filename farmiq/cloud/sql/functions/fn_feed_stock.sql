-- Feed that is left, by recount: what was received less what was taken in, of events that count.
-- per is 'lot', 'silo' or 'barn'. A lot that several barns received is one of each: an intake is of
-- that of its own barn, elsewhere of the only one there is. A silo is the device that a lot went
-- into; an intake is of its lot's silo, or else of its own device. daily_kg is the mean of the last seven local days before
-- today on which some was taken in; days_left is null if that is not known, or if more was taken in
-- than received, since then a delivery is missing.
create or replace function fn_feed_stock(tenant text, per text) returns table (
  farm_id text, barn_id text, silo_id text, feed_lot_id text, feed_product_id text,
  received_kg double precision, taken_kg double precision, stock_kg double precision,
  daily_kg double precision, days_left double precision, received_at timestamptz,
  taken_at timestamptz)
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  with counted as (
    select c.farm_id, c.barn_id, c.device_id, c.feed_lot_id, c.feed_product_id, c.occurred_at,
      c.clock_suspect, c.quantity_kg, c.event_type = 'feed.lot.received' as is_lot
    from public.counted_feed c
    where c.tenant_id = fn_feed_stock.tenant
  ), lots as (
    select l.feed_lot_id, l.farm_id, l.barn_id, count(*) over (partition by l.feed_lot_id) as barns,
      case when count(distinct l.device_id) = 1 then max(l.device_id) end as silo_id
    from counted l
    where l.is_lot and l.feed_lot_id is not null
    group by l.feed_lot_id, l.farm_id, l.barn_id
  ), keyed as (
    select c.*, coalesce(case when not c.is_lot then l.silo_id end, c.device_id) as silo_id,
      case fn_feed_stock.per
        when 'lot' then c.feed_lot_id || ' ' || coalesce(l.farm_id, c.farm_id) || ' '
          || coalesce(l.barn_id, c.barn_id)
        when 'silo' then coalesce(case when not c.is_lot then l.silo_id end, c.device_id)
        when 'barn' then c.farm_id || ' ' || c.barn_id
      end as key
    from counted c left join lots l on l.feed_lot_id = c.feed_lot_id
      and (l.barns = 1 or l.farm_id = c.farm_id and l.barn_id = c.barn_id)
  ), days as (
    select d.key, d.day, sum(d.quantity_kg) as taken_kg,
      row_number() over (partition by d.key order by d.day desc) as nth
    from (
      select k.key, k.quantity_kg,
        (k.occurred_at at time zone coalesce(f.timezone, 'UTC'))::date as day,
        (public.fn_now() at time zone coalesce(f.timezone, 'UTC'))::date as today
      from keyed k
      left join public.farms f on f.tenant_id = fn_feed_stock.tenant and f.farm_id = k.farm_id
      -- An entry of 0 kg takes another one back: nothing was taken in.
      where not k.is_lot and not k.clock_suspect and k.key is not null and k.quantity_kg > 0
    ) d
    where d.day < d.today
    group by d.key, d.day
  ), daily as (
    select d.key, avg(d.taken_kg) as kg from days d where d.nth <= 7 group by d.key
  ), stock as (
    select k.key,
      coalesce(max(k.farm_id) filter (where k.is_lot), max(k.farm_id)) as farm_id,
      coalesce(max(k.barn_id) filter (where k.is_lot), max(k.barn_id)) as barn_id,
      max(k.silo_id) as silo_id, max(k.feed_lot_id) as feed_lot_id,
      max(k.feed_product_id) as feed_product_id,
      coalesce(sum(k.quantity_kg) filter (where k.is_lot), 0) as received_kg,
      coalesce(sum(k.quantity_kg) filter (where not k.is_lot), 0) as taken_kg,
      max(k.occurred_at) filter (where k.is_lot) as received_at,
      max(k.occurred_at) filter (where not k.is_lot) as taken_at
    from keyed k where k.key is not null group by k.key
  )
  select s.farm_id, s.barn_id,
    case when fn_feed_stock.per <> 'barn' then s.silo_id end,
    case when fn_feed_stock.per = 'lot' then s.feed_lot_id end,
    case when fn_feed_stock.per = 'lot' then s.feed_product_id end,
    s.received_kg, s.taken_kg, s.received_kg - s.taken_kg, d.kg,
    case when s.received_kg >= s.taken_kg then (s.received_kg - s.taken_kg) / nullif(d.kg, 0) end,
    s.received_at, s.taken_at
  from stock s left join daily d on d.key = s.key
$$;
revoke execute on function fn_feed_stock(text, text) from public;
grant execute on function fn_feed_stock(text, text) to authenticated, farmiq_service;
