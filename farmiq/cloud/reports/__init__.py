"""Weekly and monthly reports of farms and batches as PDF, on pages and by e-mail."""
