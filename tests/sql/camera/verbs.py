"""What tests do to a wake, as the gateway does it, and what they look at afterwards."""

from typing import Any
from uuid import UUID

from tests.sql.camera.farm import Farm

URL = "s3://images/1.jpg"


def complete(farm: Farm, wake: dict[str, Any], url: str = URL) -> dict[str, Any]:
    answer: dict[str, Any] = farm.call(
        "fn_image_completion_handler", image_id=wake["image_id"], image_url=url
    )
    return answer


def fail(farm: Farm, wake: dict[str, Any], code: str = "TIMEOUT") -> dict[str, Any]:
    answer: dict[str, Any] = farm.call(
        "fn_image_failure_handler",
        image_id=wake["image_id"],
        error_code=code,
        error_message="no chunk for five minutes",
    )
    return answer


def retry(farm: Farm, device: UUID, url: str | None, name: str = "IMG_001.jpg") -> dict[str, Any]:
    answer: dict[str, Any] = farm.call(
        "fn_retry_by_id_handler", device_id=device, image_name=name, new_image_url=url
    )
    return answer


def image(farm: Farm, wake: dict[str, Any], columns: str) -> Any:
    query = f"select {columns} from device_images where image_id = %s"  # noqa: S608
    return farm.value(query, wake["image_id"])


def payload(farm: Farm, wake: dict[str, Any], columns: str) -> Any:
    query = f"select {columns} from device_wake_payloads where payload_id = %s"  # noqa: S608
    return farm.value(query, wake["payload_id"])
