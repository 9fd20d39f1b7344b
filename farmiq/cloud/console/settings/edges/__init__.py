"""The edges of a company: invite one, see its keys, end them."""
