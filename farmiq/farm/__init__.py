"""Farm rules that edge and cloud share; table names are data where they need SQL."""
