-- Which key took the place of one that was rotated.
alter table edge_keys add column replaced_by text;

-- additive: the check lets one more action in and refuses nothing that running code writes
do $$
begin
  alter table edge_actions drop constraint edge_actions_action_known;
  alter table edge_actions add constraint edge_actions_action_known
    check (action in ('invite', 'enroll', 'rotate', 'revoke', 'grant'));
end $$;

-- A MAC address may be claimed by more than one company; proven_at says which camera was heard.
alter table devices add column proven_at timestamptz;
update devices set proven_at = last_seen_at where is_active;
grant update (proven_at) on devices to farmiq_service;
-- small table devices: a row for each camera, so its writers wait for milliseconds
create index devices_by_mac_idx on devices (mac);

-- additive: what was one of a kind among all companies is so within a company and among those heard,
-- so nothing is refused that was taken before
do $$
begin
  create unique index devices_company_mac_idx on devices (company_id, mac) where is_active;
  create unique index devices_proven_mac_idx on devices (mac)
    where is_active and proven_at is not null;
  drop index devices_mac_idx;
end $$;
