alter table edge_heartbeats
  add column open_alerts bigint,
  add column quarantine bigint,
  add column dead_letters bigint,
  add column losses bigint,
  add column farms text[];
