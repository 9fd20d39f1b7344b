-- Refuses a name that is longer than those of files: an index has no room for any length.
create or replace function fn_check_image_name(image_name text) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if length(fn_check_image_name.image_name) > 255 then
    raise exception 'an image name has at most 255 characters, this one %: %…',
      length(fn_check_image_name.image_name), left(fn_check_image_name.image_name, 40)
      using errcode = 'invalid_parameter_value';
  end if;
end $$;
revoke execute on function fn_check_image_name(text) from public;
grant execute on function fn_check_image_name(text) to farmiq_jobs;
