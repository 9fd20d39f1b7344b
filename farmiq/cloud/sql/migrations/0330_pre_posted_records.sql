-- Records that are posted and not stored yet, and replacing a device's record at its own farm only.
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
    coalesce(e.payload -> 'batch_derived' = 'true', false) as batch_derived,
    e.device_id, e.stored_at
  from barn_events e
  where not exists (
    select from barn_events r
    where r.tenant_id = e.tenant_id and r.payload ->> 'replaces' = e.record_id
      and (r.farm_id = e.farm_id or e.device_id is null)
      and r.event_id <> e.event_id);
end $$;
create view posted_records with (security_invoker = true) as
select p.tenant_id, p.event_id, p.event ->> 'farm_id' as farm_id, p.event ->> 'barn_id' as barn_id,
  (p.event ->> 'occurred_at')::timestamptz as occurred_at, p.subject as record_id,
  p.event -> 'payload' ->> 'record_type' as record_type,
  case when jsonb_typeof(p.event -> 'payload' -> 'value') = 'number'
    then (p.event -> 'payload' ->> 'value')::double precision end as value_number,
  case when jsonb_typeof(p.event -> 'payload' -> 'withdrawal_days') = 'number'
    then (p.event -> 'payload' ->> 'withdrawal_days')::integer end as withdrawal_days,
  p.event -> 'payload' ->> 'batch_id' as batch_id,
  coalesce(p.event -> 'payload' -> 'batch_derived' = 'true', false) as batch_derived
from posted_events p
where p.event_type = 'barn.record.created'
  and not exists (
    select from barn_events e where e.tenant_id = p.tenant_id and e.event_id = p.event_id);
grant select on posted_records to authenticated, farmiq_service;
