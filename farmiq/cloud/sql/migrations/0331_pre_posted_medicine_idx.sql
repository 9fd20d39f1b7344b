-- Treatments and vaccinations that were posted and may not be stored yet, by barn.
create index concurrently if not exists posted_events_medicine_idx on posted_events
  (tenant_id, (event ->> 'farm_id'), (event ->> 'barn_id'))
  where event_type = 'barn.record.created'
    and (event -> 'payload' ->> 'record_type') in ('treatment', 'vaccination');
