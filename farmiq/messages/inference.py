"""Inference: what a model made of images. A prediction never replaces a scale weight (C-89)."""

from uuid import UUID

import msgspec

from farmiq.messages.kinds import Count, Name, Share, Text, WeightKg

COMPLETED = "inference.completed"


class InferenceCompleted(msgspec.Struct, frozen=True, kw_only=True):
    """One result of a session, or of an image without one.

    The weight is null where there is no estimate; `reason` says why. `is_shadow`: a model that is
    not good enough to be used made `shadow_weight_kg`, which is only compared with the scale.
    `low_kg` to `high_kg` holds 90 % of true weights, `cv_mape` is the model's error in
    cross-validation as a share, `baseline_mape` that without a camera, and `n_train` says how many
    weighings taught it.
    """

    inference_result_id: UUID
    predicted_weight_kg: WeightKg | None
    confidence: Share
    model_version: Name
    low_kg: WeightKg | msgspec.UnsetType | None = msgspec.UNSET
    high_kg: WeightKg | msgspec.UnsetType | None = msgspec.UNSET
    reason: Text | msgspec.UnsetType | None = msgspec.UNSET
    is_shadow: bool | msgspec.UnsetType = msgspec.UNSET
    shadow_weight_kg: WeightKg | msgspec.UnsetType | None = msgspec.UNSET
    frames_used: Count | msgspec.UnsetType | None = msgspec.UNSET
    n_train: Count | msgspec.UnsetType | None = msgspec.UNSET
    cv_mape: float | msgspec.UnsetType | None = msgspec.UNSET
    baseline_mape: float | msgspec.UnsetType | None = msgspec.UNSET
    media_id: UUID | msgspec.UnsetType | None = msgspec.UNSET
