-- The row is locked until the change commits, so versions become visible in their order.
create or replace function fn_devices_changed() returns trigger
language plpgsql as $$
begin
  update devices_version set version = version + 1;
  return null;
end $$;
