"""Has the scale or the camera changed? Page's CUSUM on the residuals of the model in use."""

import msgspec

# In units of the model's own spread. A shift of one spread is found after about 20 weighings; by
# chance alone one comes in tens of thousands.
SLACK, LIMIT = 0.5, 10.0
# However long it went on: so many weighings that agree close it, about twenty.
MAX_SUM = 2 * LIMIT
# One animal with a leg off the scale is no drift.
MAX_RESIDUAL = 3.0


class DriftState(msgspec.Struct, frozen=True, kw_only=True):
    """`above`: the scale says more than the camera and goes on doing so; `below`: less."""

    above: float = 0.0
    below: float = 0.0
    sessions: int = 0

    @property
    def is_drifting(self) -> bool:
        return max(self.above, self.below) > LIMIT


def cusum(state: DriftState, residual: float) -> DriftState:
    """Add one residual: ln(scale weight / prediction), divided by the manifest's residual_sd."""
    bounded = min(MAX_RESIDUAL, max(-MAX_RESIDUAL, residual))
    return DriftState(
        above=min(MAX_SUM, max(0.0, state.above + bounded - SLACK)),
        below=min(MAX_SUM, max(0.0, state.below - bounded - SLACK)),
        sessions=state.sessions + 1,
    )
