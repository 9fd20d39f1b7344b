-- Feed events that count: those that no other feed event of the company replaces, in whatever order
-- they arrived.
create view counted_feed with (security_invoker = true) as
select e.tenant_id, e.event_id, e.event_type, e.farm_id, e.barn_id, e.device_id, e.occurred_at,
  e.clock_suspect, e.source, e.quantity_kg, e.feed_lot_id,
  e.payload ->> 'feed_product_id' as feed_product_id,
  e.payload ->> 'batch_id' as batch_id,
  fn_replaced_event(e.payload) as replaces,
  coalesce(e.payload -> 'batch_derived' = 'true', false) as batch_derived
from feed_events e
where not exists (
  select from feed_events r
  where r.tenant_id = e.tenant_id and fn_replaced_event(r.payload) = e.event_id
    and r.event_id <> e.event_id);
grant select on counted_feed to authenticated, farmiq_service;
