-- How many animals were placed, so that no more die; the last copy of the cloud's batches has it.
alter table cloud_batches add column placed_count integer;
update cloud_batches set placed_count = (
  select (c.placed ->> 'placed_count')::integer
  from cloud_contexts t cross join lateral jsonb_array_elements(t.content -> 'batches') as c(placed)
  where t.tenant_id = cloud_batches.tenant_id
    and c.placed ->> 'batch_id' = cloud_batches.batch_id);
-- Who entered an intake over HTTP.
alter table feed_intakes add column recorded_by text;
