-- Whether the batch of a weighing was derived from its barn (D-665).
alter table weight_sessions add column batch_derived boolean not null default false;
-- additive: it fills the new column alone.
update weight_sessions s set batch_derived = true
from weighvision_events e
where e.tenant_id = s.tenant_id and e.session_id = s.session_id
  and e.event_type = 'weighvision.session.created' and e.payload -> 'batch_derived' = 'true'
  and s.batch_id = e.batch_id;
