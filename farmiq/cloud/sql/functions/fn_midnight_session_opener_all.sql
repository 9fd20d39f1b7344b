-- Opens today of every active site in an active program (FN-02, C-54). May be called at any time and
-- as often as one likes; a site that fails does not stop the others.
create or replace function fn_midnight_session_opener_all() returns jsonb
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  site record;
  results jsonb[] := '{}';
  errors integer := 0;
begin
  for site in
    select s.site_id from public.sites s
    join public.pilot_programs p on p.program_id = s.program_id
    where s.is_active and p.is_active
    order by s.site_id
  loop
    begin
      results := results || (jsonb_build_object('site_id', site.site_id)
        || public.fn_midnight_session_opener(site.site_id));
    exception when others then
      errors := errors + 1;
      results := results || jsonb_build_object('site_id', site.site_id, 'error', sqlerrm);
    end;
  end loop;
  return jsonb_build_object('success_count', cardinality(results) - errors, 'error_count', errors,
    'results', to_jsonb(results));
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_midnight_session_opener_all() owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_midnight_session_opener_all() from public;
grant execute on function fn_midnight_session_opener_all() to farmiq_service;
