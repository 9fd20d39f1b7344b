"""The design system on one page: every part that pages are made of."""
