-- How much lies aside for an image whose upload was rejected: it counts in the store's budget.
alter table media_objects add column aside_bytes bigint
  constraint media_objects_aside_not_negative check (aside_bytes >= 0);
