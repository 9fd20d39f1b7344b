create index concurrently if not exists inference_events_device_idx
  on inference_events (tenant_id, device_id, occurred_at desc);
