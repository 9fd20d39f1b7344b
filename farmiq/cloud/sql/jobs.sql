-- Where the extension pg_cron is installed, it calls both functions at the documented times too
-- (C-77). The calendar calls them every minute anyway; calling twice harms nobody.
do $$
begin
  if exists (select from pg_extension e where e.extname = 'pg_cron') then
    execute $call$select cron.schedule('farmiq midnight session opener', '0 0 * * *',
      'select public.fn_midnight_session_opener_all()')$call$;
    -- pg_cron knows minutes: the last second of the day is a day that is over a minute later.
    execute $call$select cron.schedule('farmiq end of day locker', '59 23 * * *',
      'select public.fn_end_of_day_locker_all()')$call$;
  end if;
end $$;
