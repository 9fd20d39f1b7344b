"""Real birds (25 ducks under a fixed camera), where the shared data lie beside the repository.

The data may not be copied. Without them there is no test here: one that skips would hide that a
machine which should have them has lost them. CI has them.
"""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from farmiq.cli import app

ROOT = Path(__file__).parents[4]
DUCKS = ROOT.parent / "shared" / "data" / "ducks"

if DUCKS.exists():

    def test_ducks_left_out_are_weighed_within_the_target(tmp_path: Path) -> None:
        """Three frames of each bird's twelve: `farmiq bench vision` takes all."""
        (tmp_path / "weights.csv").write_text((DUCKS / "weights.csv").read_text())
        for bird in (path for path in DUCKS.iterdir() if path.is_dir()):
            (tmp_path / bird.name).mkdir()
            for frame in sorted(bird.glob("*.jpg"))[::4]:
                (tmp_path / bird.name / frame.name).symlink_to(frame)
        answer = CliRunner().invoke(app, ["vision", "evaluate", str(tmp_path), "--json"])
        assert answer.exit_code == 0, answer.output
        result = json.loads(answer.stdout)

        assert result["n_predicted"] == result["n_sessions"] == 25
        assert result["mape"] <= 0.055 < result["baseline_mape"]
        assert result["rank_correlation"] > 0.85

    def test_explained_duck_is_one_picture(tmp_path: Path) -> None:
        few = ["01", "03", "05", "07", "09", "11", "13", "15", "17", "19", "21"]
        (tmp_path / "weights.csv").write_text(
            "bird,weight_kg\n" + "".join(f"{bird},{2 + 0.1 * n}\n" for n, bird in enumerate(few))
        )
        for bird in few:
            (tmp_path / bird).mkdir()
            (tmp_path / bird / "0.jpg").symlink_to(DUCKS / bird / "frame-00.jpg")
        out = tmp_path / "explained.png"
        answer = CliRunner().invoke(
            app, ["vision", "explain", str(tmp_path), "13", "--out", str(out)]
        )
        assert answer.exit_code in (0, 3), answer.output
        assert out.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("weights", ["", "bird,kg\n1,2\n", "bird,weight_kg\n../x,2\n"])
def test_folder_without_weights_is_explained(weights: str, tmp_path: Path) -> None:
    (tmp_path / "weights.csv").write_text(weights)
    answer = CliRunner().invoke(app, ["vision", "evaluate", str(tmp_path)])
    assert answer.exit_code == 2
    assert "weights.csv" in answer.output
