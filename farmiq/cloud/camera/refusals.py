"""Pure: the kinds of what is refused of cameras."""

KINDS = (
    "format", "unknown", "unassigned", "dialect", "security", "conflict", "limits", "database",
)  # fmt: skip
