-- Counts of mails of past hours are removed.
grant delete on alert_mail_counts to farmiq_service;
