-- Which key took the place of one that was rotated.
alter table edge_keys add column replaced_by text;

-- additive: the check lets one more action in and refuses nothing that running code writes
do $$
begin
  alter table edge_actions drop constraint edge_actions_action_known;
  alter table edge_actions add constraint edge_actions_action_known
    check (action in ('invite', 'enroll', 'rotate', 'revoke', 'grant'));
end $$;
