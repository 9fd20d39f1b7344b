-- The estimates of a session, newest first.
create index concurrently if not exists inference_events_session_idx on inference_events
  (tenant_id, session_id, occurred_at desc, event_id desc) where session_id is not null;
