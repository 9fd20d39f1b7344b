"""Figures of batches as people read them: for the API, the command line and the pages."""
