-- Whether the batch of a record or of feed was derived from its barn (D-460).
-- additive: PostgreSQL lets a view be replaced only by one with the same columns and more behind.
do $$
begin
  create or replace view counted_records with (security_invoker = true) as
  select e.tenant_id, e.event_id, e.farm_id, e.barn_id, e.occurred_at, e.clock_suspect, e.record_id,
    e.record_type, e.value_number, e.value_text, e.unit, e.recorded_by_ref,
    e.payload ->> 'product' as product,
    case when jsonb_typeof(e.payload -> 'withdrawal_days') = 'number'
      then (e.payload ->> 'withdrawal_days')::integer end as withdrawal_days,
    e.payload ->> 'batch_id' as batch_id,
    e.payload ->> 'replaces' as replaces,
    coalesce(e.payload -> 'batch_derived' = 'true', false) as batch_derived
  from barn_events e
  where not exists (
    select from barn_events r
    where r.tenant_id = e.tenant_id and r.payload ->> 'replaces' = e.record_id
      and r.event_id <> e.event_id);
  create or replace view counted_feed with (security_invoker = true) as
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
end $$;
