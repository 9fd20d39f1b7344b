-- Pages that show the company's cameras are told that something of them changed.
create or replace function fn_camera_changed() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pg_notify('camera_changed', new.company_id::text);
  return null;
end $$;
revoke execute on function fn_camera_changed() from public;
