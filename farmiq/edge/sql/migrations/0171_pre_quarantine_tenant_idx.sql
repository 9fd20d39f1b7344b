create index concurrently if not exists quarantine_tenant_idx
  on quarantine (split_part(topic, '/', 3), quarantine_id desc);
