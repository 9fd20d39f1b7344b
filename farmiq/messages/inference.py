"""Inference: what a model made of an image. A prediction never replaces a scale weight (C-89)."""

from uuid import UUID

import msgspec

from farmiq.messages.kinds import Name, Share, WeightKg

COMPLETED = "inference.completed"


class InferenceCompleted(msgspec.Struct, frozen=True, kw_only=True):
    inference_result_id: UUID
    predicted_weight_kg: WeightKg
    confidence: Share
    model_version: Name
