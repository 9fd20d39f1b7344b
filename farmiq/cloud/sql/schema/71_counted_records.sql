-- Barn records that count: those that no other record replaces, in whatever order they arrived. Devices
-- choose their ids, so what one sent is replaced by records of its farm alone; ids of what people
-- enter are unique in the company.
create view counted_records with (security_invoker = true) as
select e.tenant_id, e.event_id, e.farm_id, e.barn_id, e.occurred_at, e.clock_suspect, e.record_id,
  e.record_type, e.value_number, e.value_text, e.unit, e.recorded_by_ref,
  e.payload ->> 'product' as product,
  case when jsonb_typeof(e.payload -> 'withdrawal_days') = 'number'
    then (e.payload ->> 'withdrawal_days')::integer end as withdrawal_days,
  e.payload ->> 'batch_id' as batch_id,
  e.payload ->> 'replaces' as replaces,
  coalesce(e.payload -> 'batch_derived' = 'true', false) as batch_derived,
  e.device_id, e.stored_at
from barn_events e
where not exists (
  select from barn_events r
  where r.tenant_id = e.tenant_id and r.payload ->> 'replaces' = e.record_id
    and (r.farm_id = e.farm_id or e.device_id is null)
    and r.event_id <> e.event_id);
grant select on counted_records to authenticated, farmiq_service;
