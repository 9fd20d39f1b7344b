"""JSON Schema of our types, as the components of a document."""

from collections.abc import Sequence
from typing import Any

import msgspec

PREFIX = "#/components/schemas/"


def components(types: Sequence[Any]) -> dict[str, Any]:
    """The schemas of these types and of all they refer to, by name."""
    _, schemas = msgspec.json.schema_components(types, ref_template=PREFIX + "{name}")
    return dict(sorted(schemas.items()))


def ref(kind: Any) -> dict[str, str]:
    return {"$ref": PREFIX + kind.__name__}
