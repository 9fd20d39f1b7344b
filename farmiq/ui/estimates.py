"""Pure: what a model made of the images of a weighing, as pages of both sites say it."""

from dataclasses import dataclass
from uuid import UUID

from farmiq.ui import words
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import marked, ngettext

# Why there is no estimate, as people read it; the code before a colon.
REASONS = {
    "no_model": marked("the camera has not learned from enough weighings yet"),
    "shadow": marked("the model is tried out and not used yet"),
    "out_of_distribution": marked("the animal is unlike all that the model knows"),
    "other_feature_schema": marked("the model is of an older version"),
    "no_prediction": marked("the model gives no figure"),
    "model_unusable": marked("the model's files are lost or damaged"),
    "empty_scale": marked("no animal in the picture"),
    "no_animal": marked("no animal in the picture"),
    "no_frames": marked("no picture"),
    "no_image": marked("no picture"),
    "two_animals": marked("more than one animal in the picture"),
    "hand": marked("something else is in the picture"),
    "cut_off": marked("the animal is not wholly in the picture"),
    "too_dark": marked("the picture is too dark"),
    "too_bright": marked("the picture is too bright"),
    "too_blurred": marked("the picture is blurred"),
    "no_contrast": marked("the picture has too little contrast"),
    "scene_changed": marked("the scale looks unlike its picture without an animal"),
    "unusable_reference": marked("the picture of the empty scale is too dark or blurred"),
    "animal_in_reference": marked("the picture of the empty scale shows an animal"),
    "poor_frame": marked("the picture is too poor"),
    "not_decodable": marked("the picture cannot be read"),
    "not_in_the_store": marked("the picture is gone"),
    "set_aside": marked("looking at the pictures failed"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """It never replaces the scale (C-89). Errors, `confidence` and `coverage` are shares.

    `sessions`, `mape` and `coverage` are of weighings that were estimated first and compared then.
    """

    inference_result_id: UUID
    predicted_weight_kg: float | None
    confidence: float
    model_version: str
    low_kg: float | None = None
    high_kg: float | None = None
    reason: str | None = None
    is_shadow: bool = False
    n_train: int | None = None
    cv_mape: float | None = None
    baseline_mape: float | None = None
    sessions: int = 0
    mape: float | None = None
    coverage: float | None = None

    @property
    def silence(self) -> str:
        """Why there is no estimate."""
        code = (self.reason or "no_model").partition(":")[0]
        return _(REASONS[code]) if code in REASONS else code

    @property
    def model_state(self) -> str:
        """What the model is, and why it is used or not."""
        if self.n_train is None or self.cv_mape is None:
            return ""
        counted = ngettext(
            "Learned from %(count)s weighing", "Learned from %(count)s weighings", self.n_train
        ) % {"count": words.number(self.n_train)}
        given = {"learned": counted, "error": words.percent(self.cv_mape, 1)}
        if self.baseline_mape is None:
            return _("%(learned)s, error %(error)s") % given
        given["baseline"] = words.percent(self.baseline_mape, 1)
        if self.is_shadow:
            return (
                _(
                    "%(learned)s, error %(error)s; %(baseline)s without a camera: not used until "
                    "it is surely better"
                )
                % given
            )
        return _("%(learned)s, error %(error)s; %(baseline)s without a camera") % given
