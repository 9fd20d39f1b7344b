"""Schedules of cameras: in words, and the page that changes one."""
