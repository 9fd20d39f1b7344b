"""The routes of images at the edge and in the cloud, for their OpenAPI documents."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

from farmiq import asked
from farmiq.cloud.media import ask as cloud_ask
from farmiq.contracts import schemas
from farmiq.edge.media import ask as edge_ask
from farmiq.edge.media.api import MOST_BYTES, ROOT
from farmiq.messages.ids import ID_PATTERN
from farmiq.messages.media import PRESIGN, ImageToUpload, ImageType, UploadAddress

UploadStatus = Literal["presigned", "stored", "missing"]


class EdgeImage(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An image as the edge knows it.

    `stored`: its bytes are here and right. `missing`: they were announced and are not here, or what
    was uploaded was refused (`refused_reason`) and lies aside. `synced_at`: the cloud has them.
    """

    media_id: UUID
    tenant_id: str
    farm_id: str
    barn_id: str
    device_id: str
    station_id: str | None
    session_id: UUID | None
    mime_type: ImageType
    size_bytes: int | None
    sha256: str | None
    captured_at: datetime
    created_at: datetime
    upload_status: UploadStatus
    announced_at: datetime | None
    stored_at: datetime | None
    synced_at: datetime | None
    refused_at: datetime | None
    refused_reason: str | None


class EdgeImageDetail(EdgeImage, kw_only=True, forbid_unknown_fields=True):
    object_key: str
    bucket: str


class EdgeImages(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Newest capture first; `next_cursor` asks for the next page, null: there is none."""

    images: list[EdgeImage]
    next_cursor: str | None


class CloudImage(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An image of the person's company. `told_at`: its event came. `stored_at`: its bytes did."""

    media_id: UUID
    farm_id: str | None
    barn_id: str | None
    device_id: str | None
    station_id: str | None
    session_id: UUID | None
    mime_type: str | None
    size_bytes: int | None
    sha256: str | None
    captured_at: datetime | None
    told_at: datetime | None
    stored_at: datetime | None


class CloudImages(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Newest capture first; `next_cursor` asks for the next page, null: there is none."""

    images: list[CloudImage]
    next_cursor: str | None


EDGE_TYPES = (ImageToUpload, UploadAddress, EdgeImages, EdgeImageDetail)
CLOUD_TYPES = (ImageToUpload, UploadAddress, CloudImages, CloudImage)

_PRESIGN_WRONG = {
    "400": "VALIDATION_ERROR: `details` names everything that is wrong.",
    "401": "UNAUTHENTICATED: no token, or not a good one.",
    "403": "FORBIDDEN: the body speaks of somebody else; `details` says where.",
    "409": "CONFLICT: this mediaId or x-request-id was used for an image of another content.",
    "413": f"PAYLOAD_TOO_LARGE: the image is, or the request has more than {MOST_BYTES} bytes.",
    "415": "UNSUPPORTED_MEDIA_TYPE: send application/json.",
    "503": "UNAVAILABLE: the database or the object store is away, or there is none.",
}
_LOOK_WRONG = {
    "400": "VALIDATION_ERROR: `details` names everything that is wrong.",
    "401": "UNAUTHENTICATED: no key or sign-in, or not a good one.",
    "403": "FORBIDDEN: the key's role does not allow it.",
    "503": "UNAVAILABLE: the database or the object store is away.",
}
_NOT_THERE = {"404": "NOT_FOUND: there is no such image, or its bytes are not here."}
_UUID = {"type": "string", "format": "uuid"}
_ID = {"type": "string", "pattern": ID_PATTERN}
_MOMENT = {"type": "string", "format": "date-time"}
_PEOPLE: list[dict[str, list[str]]] = [{"signIn": []}, {"signInToken": []}]


def edge_paths(error: Any) -> dict[str, Any]:
    """`error` is the type of the standard error body."""
    return {
        PRESIGN: {
            "post": {
                "summary": "Where a device may put an image",
                "operationId": "presignImage",
                "description": "PUT the bytes to `upload_url` with `required_headers`; without "
                "contentLength it is one of the edge's, which answers 413 above 10 MiB. The same "
                "x-request-id has the same media_id; `mediaId` asks about the same image again, "
                "and answers `stored` if it is whole in the store.",
                "security": [{"deviceToken": []}],
                "parameters": [_parameter("x-request-id", _UUID, "header")],
                "requestBody": {"required": True, "content": _json(ImageToUpload)},
                "responses": _answers(
                    UploadAddress,
                    error,
                    _PRESIGN_WRONG
                    | {"429": "TOO_MANY_REQUESTS: the device asks too often; see Retry-After."},
                ),
            }
        },
        **_looking(
            error,
            EdgeImages,
            EdgeImageDetail,
            [{"key": []}],
            [
                *(
                    _parameter(name, _ID)
                    for name in ("tenant", "farm", "barn", "device", "station")
                ),
                _parameter("session", _UUID),
                _parameter("status", {"type": "string", "enum": [*edge_ask.STATES]}),
                *(_parameter(name, _MOMENT) for name in ("from", "to")),
                *_page(edge_ask.MOST_ROWS, asked.LONGEST_CURSOR),
            ],
        ),
    }


def cloud_paths(error: Any) -> dict[str, Any]:
    company = _parameter("company", _UUID)
    return {
        PRESIGN: {
            "post": {
                "summary": "Where an edge may put an image",
                "operationId": "presignImage",
                "description": "mediaId, sha256 and contentLength are needed here. `stored` says "
                "that the bytes are in the cloud, read back and equal to that sha256.",
                "security": [{"edgeToken": []}],
                "requestBody": {"required": True, "content": _json(ImageToUpload)},
                "responses": _answers(UploadAddress, error, _PRESIGN_WRONG),
            }
        },
        **_looking(
            error,
            CloudImages,
            CloudImage,
            _PEOPLE,
            [
                _parameter("session", _UUID),
                _parameter("device", _ID),
                _parameter("day", {"type": "string", "format": "date"}),
                *_page(cloud_ask.MOST_ROWS, asked.LONGEST_CURSOR),
                company,
            ],
            also=[company],
        ),
    }


def _looking(  # noqa: PLR0917 - the two sites, side by side
    error: Any,
    listed: Any,
    one: Any,
    security: list[dict[str, list[str]]],
    filters: list[dict[str, Any]],
    also: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    wrong = {**_LOOK_WRONG, **_NOT_THERE}
    which = [{**_parameter("media_id", _UUID, "path"), "required": True}, *(also or [])]
    picture: dict[str, Any] = {
        name: {"schema": {}} for name in ("image/jpeg", "image/png", "image/webp")
    }
    shown = {
        "200": {"description": "The picture, without its metadata.", "content": picture},
        "304": {"description": "It is the one of If-None-Match."},
        **_errors(error, wrong),
    }
    small = {
        **shown,
        "200": {
            "description": "At most 320 pixels wide and high.",
            "content": {"image/jpeg": {"schema": {}}},
        },
    }
    return {
        ROOT: {
            "get": {
                "summary": "Images, newest capture first",
                "security": security,
                "parameters": filters,
                "responses": _answers(listed, error, wrong),
            }
        },
        f"{ROOT}/{{media_id}}": {
            "get": {
                "summary": "The picture as it was taken, without EXIF and other metadata",
                "security": security,
                "parameters": which,
                "responses": shown,
            }
        },
        f"{ROOT}/{{media_id}}/detail": {
            "get": {
                "summary": "What is known of an image",
                "security": security,
                "parameters": which,
                "responses": _answers(one, error, wrong),
            }
        },
        f"{ROOT}/{{media_id}}/thumbnail": {
            "get": {
                "summary": "A small picture of it",
                "security": security,
                "parameters": which,
                "responses": small,
            }
        },
    }


def _page(most: int, longest: int) -> list[dict[str, Any]]:
    return [
        _parameter("limit", {"type": "integer", "minimum": 1, "maximum": most}),
        _parameter("cursor", {"type": "string", "maxLength": longest}),
    ]


def _parameter(name: str, schema: dict[str, Any], place: str = "query") -> dict[str, Any]:
    return {"name": name, "in": place, "required": False, "schema": schema}


def _answers(kind: Any, error: Any, wrong: dict[str, str]) -> dict[str, Any]:
    good = {"description": "It is answered.", "content": _json(kind)}
    return {"200": good, **_errors(error, wrong)}


def _errors(error: Any, wrong: dict[str, str]) -> dict[str, Any]:
    return {status: {"description": why, "content": _json(error)} for status, why in wrong.items()}


def _json(kind: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schemas.ref(kind)}}
