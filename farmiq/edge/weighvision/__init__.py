"""Weigh sessions at the edge: the events of a station, put together to sessions."""
