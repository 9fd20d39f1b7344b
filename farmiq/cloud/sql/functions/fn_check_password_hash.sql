-- Raises unless this is an argon2id hash: a password itself is never stored.
create or replace function fn_check_password_hash(password_hash text) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if password_hash is null or password_hash !~ '^\$argon2id\$' or length(password_hash) > 500 then
    raise exception 'the password has to be an argon2id hash'
      using errcode = 'invalid_parameter_value';
  end if;
end $$;
revoke execute on function fn_check_password_hash(text) from public;
grant execute on function fn_check_password_hash(text) to farmiq_jobs;
