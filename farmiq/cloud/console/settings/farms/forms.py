"""Pure: the forms of farms, barns and feed products, as data, and what is typed into them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import msgspec

from farmiq.cloud.console.entry import rejected
from farmiq.cloud.farms.kinds import BARNS, FARMS, FEED_PRODUCTS, Kind
from farmiq.plumbing.http import HttpError
from farmiq.ui.entry import fields
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import marked

ROOT = "/settings/farms"
NEW = "new"


@dataclass(frozen=True, slots=True)
class Field:
    """`kind` is that of the input: text, whole or decimal. A key cannot be changed later."""

    name: str
    label: str
    kind: str = "text"
    hint: str = ""
    is_required: bool = False
    is_key: bool = False
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MasterForm:
    """A kind of master data with its address, its words and its fields."""

    kind: Kind
    path: str
    add: str
    change: str
    fields: tuple[Field, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        return self.kind.key

    def address(self, row: Mapping[str, Any]) -> str:
        """Where this row is changed."""
        return "/".join((self.path, *(quote(str(row[name]), safe="") for name in self.keys)))


_NAME = Field("name", marked("Name"), is_required=True, attributes={"maxlength": 256})


def _id(name: str, label: str, hint: str = "") -> Field:
    return Field(
        name, label, hint=hint, is_required=True, is_key=True,
        attributes={"maxlength": 128, "autocomplete": "off"},
    )  # fmt: skip


_FARM_ID = _id("farm_id", marked("Farm, as devices name it"))
FARM = MasterForm(
    FARMS, f"{ROOT}/farms", marked("Add a farm"), marked("Change a farm"),
    (
        _FARM_ID,
        _NAME,
        Field(
            "timezone", marked("Time zone"), hint=marked("Such as Asia/Bangkok."), is_required=True,
            attributes={"maxlength": 64, "list": "zones", "autocomplete": "off"},
        ),
    ),
)  # fmt: skip
BARN = MasterForm(
    BARNS, f"{ROOT}/barns", marked("Add a barn"), marked("Change a barn"),
    (
        _FARM_ID,
        _id("barn_id", marked("Barn, as devices name it")),
        _NAME,
        Field("capacity", marked("Room for so many animals"), "whole"),
        Field("area_m2", marked("Area in square metres"), "decimal"),
    ),
)  # fmt: skip
PRODUCT = MasterForm(
    FEED_PRODUCTS, f"{ROOT}/products",
    marked("Add a feed product"), marked("Change a feed product"),
    (
        _id(
            "feed_product_id", marked("Number of the product"),
            marked("As on the delivery note; it cannot be changed later."),
        ),
        _NAME,
        Field("species", marked("For the species"), attributes={"maxlength": 64}),
        Field("dry_matter_pct", marked("Dry matter in per cent"), "decimal"),
        Field("energy_mj_per_kg", marked("Energy in MJ per kg"), "decimal"),
    ),
)  # fmt: skip
FORMS = {"farms": FARM, "barns": BARN, "products": PRODUCT}


def read(form: MasterForm, typed: Mapping[str, str]) -> Any:
    """The row of what was typed. Raises HttpError 422 with everything that is wrong."""
    values, errors = fields.master_data(
        typed, [(entry.name, entry.kind, entry.is_required) for entry in form.fields]
    )
    if errors:
        raise rejected.invalid(errors)
    try:
        return msgspec.convert(values, form.kind.struct)
    except msgspec.ValidationError as error:
        reason, _at, path = str(error).partition(" - at `$.")
        name = path.removesuffix("`")
        if name in form.keys:
            reason = _("Use letters, digits, points, dashes, colons or underlines.")
        if "time zone" in reason:
            name = "timezone"
        raise rejected.invalid(fields.errors_of([{"field": name, "reason": reason}], "")) from None


def conflict(
    row: Mapping[str, Any] | None, wanted: Any, typed: Mapping[str, str], *, is_new: bool
) -> HttpError | None:
    """Why it cannot be saved now: it is there already, or somebody changed it meanwhile."""
    if row is None:
        return None if is_new else HttpError(404, "there is no such row")
    # What was sent twice is there already, and is no conflict.
    if all(row[name] == value for name, value in msgspec.structs.asdict(wanted).items()):
        return None
    if is_new:
        return rejected.invalid({row_key(wanted): _("There is one of this name already.")})
    if typed.get("changed_at") != stamp(row):
        return HttpError(
            rejected.CONFLICT, _("somebody changed this meanwhile; load the page again")
        )
    return None


def row_key(row: Any) -> str:
    """The field that tells a row from others of its farm."""
    return next(name for name in ("feed_product_id", "barn_id", "farm_id") if hasattr(row, name))


def stamp(row: Mapping[str, Any]) -> str:
    """Tells a form that was read before another change from one that was not."""
    return str(row["changed_at"].isoformat())
