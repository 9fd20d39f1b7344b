"""The companies of an installation, for its super admins: listed, and added with a first admin."""
