create index concurrently if not exists inference_events_session_idx
  on inference_events (tenant_id, session_id);
create index concurrently if not exists inference_events_device_idx
  on inference_events (tenant_id, device_id, occurred_at desc);
