"""The people of a company: who there is, and what an admin does about them."""
