"""What is wrong with a form, as an answer and at its fields."""

from fastapi import Request

from farmiq.plumbing.http import HttpError
from farmiq.ui import look
from farmiq.ui.entry import fields
from farmiq.ui.entry.fields import Errors
from farmiq.ui.i18n import gettext as _

CONFLICT, NOT_VALID = 409, 422


def invalid(errors: Errors) -> HttpError:
    """422 with a detail for each wrong field."""
    details = [{"field": field, "reason": reason} for field, reason in errors.items()]
    return HttpError(NOT_VALID, _("Some fields are wrong."), details=details)


def raise_unless_shown(request: Request, error: HttpError) -> None:
    """Pass if a browser can be shown the form again, with what is wrong; else raise the error."""
    if not look.is_browser(request) or error.status not in (CONFLICT, NOT_VALID):
        raise error


def at_fields(error: HttpError) -> Errors:
    """The reasons of `invalid` by field; of a conflict, its message above the form."""
    if error.status == NOT_VALID:
        return {item["field"]: item["reason"] for item in error.details or []}
    return fields.errors_of(None, error.message)
