create index concurrently if not exists telemetry_aggregates_series_idx
  on telemetry_aggregates (tenant_id, device_id, metric_type, occurred_at desc);

-- Who was revoked, and who was registered again: few rows among many.
create index concurrently if not exists device_events_revoked_idx
  on device_events (tenant_id, device_id, occurred_at desc)
  where payload ? 'revoked';
