create index concurrently if not exists telemetry_latest_metric_idx
  on telemetry_latest (tenant_id, metric_type);
create index concurrently if not exists device_alerts_about_idx on device_alerts
  (company_id, (coalesce(device_id, site_id)), alert_type, resolved_at desc);
