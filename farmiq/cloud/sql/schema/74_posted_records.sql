-- Barn records that people posted and that cloud-barn-service has not stored yet: the bus or the
-- service may be away.
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
