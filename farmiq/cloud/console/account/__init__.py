"""The account of who is signed in: password, second factor, sessions, language."""
