-- What people ended: edges ask each minute what of it is still bad.
create index concurrently if not exists alert_episodes_by_person_idx on alert_episodes
  (tenant_id, resolved_at) where ended_reason = 'person';
