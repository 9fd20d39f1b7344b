"""Who people are: companies, accounts, passwords and sign-ins."""
