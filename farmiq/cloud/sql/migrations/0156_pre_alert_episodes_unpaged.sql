create index concurrently if not exists alert_episodes_unpaged_idx on alert_episodes (last_at)
  where state = 'active' and paged_at is null;
create index concurrently if not exists alert_episodes_ended_idx on alert_episodes (resolved_at)
  where state in ('resolved', 'withdrawn');
