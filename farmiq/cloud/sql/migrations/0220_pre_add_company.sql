-- Super admins add companies on the console, by a function that belongs to farmiq_jobs.
create policy companies_jobs_add on companies for insert to farmiq_jobs with check (true);
grant insert (company_id, tenant_id, name, timezone) on companies to farmiq_jobs;
