-- Whether the batch of a weighing was derived from its barn (D-665).
alter table weight_sessions add column batch_derived boolean not null default false;
update weight_sessions set batch_derived = true
from weighvision_events e
where e.tenant_id = weight_sessions.tenant_id and e.session_id = weight_sessions.session_id
  and e.event_type = 'weighvision.session.created' and e.payload -> 'batch_derived' = 'true'
  and weight_sessions.batch_id = e.batch_id;
