"""The picture of a calibration."""

from pathlib import Path

import pytest
from matplotlib.axes import Axes

from engine.calibrate.plot import plot_calibration
from policy.acceptance import Acceptance
from policy.cost import Calibration, CostCell

CALIBRATION = Calibration(
    (
        CostCell(1, 0, 128, 0.010, 0.0),
        CostCell(1, 1, 128, 0.011, 0.001),
        CostCell(1, 3, 128, 0.012, 0.003),
        CostCell(4, 0, 128, 0.040, 0.0),
        CostCell(4, 1, 128, 0.080, 0.002),
        CostCell(4, 0, 1024, 0.050, 0.0),
        CostCell(4, 1, 1024, 0.090, 0.002),
    )
)
ACCEPTANCE = Acceptance(1.0, (0.5, 0.25, 0.125), 0.5, 0.7)


def test_every_row_tells_its_milliseconds_a_token_and_frames_its_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: dict[tuple[float, float], str] = {}
    frames: list[tuple[float, float]] = []
    text, add_patch = Axes.text, Axes.add_patch

    def told(axes, x, y, s, *args, **kwargs):  # type: ignore[no-untyped-def]
        texts[x, y] = s
        return text(axes, x, y, s, *args, **kwargs)

    def framed(axes, patch):  # type: ignore[no-untyped-def]
        frames.append((patch.get_x() + 0.5, patch.get_y() + 0.5))
        return add_patch(axes, patch)

    monkeypatch.setattr(Axes, "text", told)
    monkeypatch.setattr(Axes, "add_patch", framed)
    path = tmp_path / "map.png"
    plot_calibration(CALIBRATION, ACCEPTANCE, path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert texts[0, 0] == "10"
    assert texts[1, 0] == "8"  # (11 + 1) ms for 1.5 tokens
    assert texts[2, 0].startswith("(")  # between what was measured
    assert texts[0, 1] == "40"
    assert texts[3, 1].startswith("(")  # beyond
    assert frames == [(2, 0), (0, 1)]


def test_a_machine_on_which_nothing_pays_is_drawn(tmp_path: Path) -> None:
    nothing = Acceptance(1.0, (0.0,), 0.0, 1.0)
    plot_calibration(CALIBRATION, nothing, tmp_path / "map.png")
    assert (tmp_path / "map.png").is_file()


def test_a_picture_that_cannot_be_written_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        plot_calibration(CALIBRATION, ACCEPTANCE, tmp_path / "none" / "map.png")
