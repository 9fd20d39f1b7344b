"""Programs: control against experimental, and figures at six levels (DB2-16, DB2-19)."""
