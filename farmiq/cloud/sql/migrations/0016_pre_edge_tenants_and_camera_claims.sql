-- Which key took the place of one that was rotated.
alter table edge_keys add column replaced_by text;
