"""`farmiq install`: a machine becomes an edge, a cloud or a weigh station, and can be undone.

Read `sites.py` first (what each machine gets), then `steps.py` (how it is made and removed),
`units.py` (what a unit of ours looks like) and `prepare.py` (what is made in the engines).
"""
