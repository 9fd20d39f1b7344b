-- What edges call incomplete is looked at every minute.
create index concurrently if not exists weighvision_events_incomplete_idx on weighvision_events
  (occurred_at) where event_type = 'weighvision.session.incomplete';
