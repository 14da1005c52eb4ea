"""The SST experiment: record, parameters and errors."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from experiments.sst_grids import small_grid
from smnn.experiments.sst import run as sst
from smnn.experiments.sst import view


@pytest.fixture(name="result")
def _result(runs: Any) -> sst.Result:
    return runs["sst"]  # type: ignore[no-any-return]


class TestExperiment:
    def test_record(self, result: sst.Result) -> None:
        record = result.record()
        assert len(record["holdouts"]) == 2
        assert record["holdouts"][0]["history_ends"] == "2004-08"
        assert record["holdouts"][1]["target_ends"] == "2004-08"
        assert len(record["networks"]) == len(sst.RUNS) * 2
        assert {e["protocol"] for e in record["networks"]} == {sst.HISTORY, sst.PEEK}
        assert record["probes"]["effects"]["last chunk against first"]["believable"]

    def test_parameters(self, result: sst.Result) -> None:
        p = result.parameters
        assert p is not None
        N = int(result.grid.ocean.sum())
        assert p.values.shape == (7, N, 6)  # 176 months of history contain seven chunks
        c0, c1 = p.values[-1, :, 0], p.values[-1, :, 1]
        # From the characteristic roots.
        roots = np.array([np.roots([1, b, a]) for a, b in zip(c0, c1)])
        slow = -1 / roots.real.max(1) * 12 / (2 * np.pi)
        np.testing.assert_allclose(p.damping, slow, rtol=1e-6)
        turning = np.abs(roots[:, 0].imag) > 1e-9
        np.testing.assert_allclose(
            p.period[turning], 12 / np.abs(roots[turning, 0].imag), rtol=1e-6
        )

    def test_refusals(self) -> None:
        with pytest.raises(ValueError, match="expected at least 288"):
            sst.run(sst.Config(holdouts=3), grid=small_grid())
        grid = small_grid()
        weeks = grid.time[0] + 7 * np.arange(200) * np.timedelta64(1, "D")
        weekly = replace(grid, time=weeks)
        with pytest.raises(ValueError, match="7 to 7 days apart; expected one value for each"):
            sst.run(sst.Config(), grid=weekly)
        with pytest.raises(ValueError, match="nothing to forecast"):
            sst.run(sst.Config(), grid=replace(grid, ocean=np.zeros_like(grid.ocean)))
        with pytest.raises(ValueError, match="'small' or 'full'"):
            sst.Config(scale="large")
        with pytest.raises(ValueError, match="0 seeds"):
            sst.Config(seeds=0)


def test_a_region_is_not_probed() -> None:
    """Without polar cells there are no probes."""
    grid = small_grid(120)
    part = slice(2, 7)
    region = replace(grid, values=grid.values[:, part, :4], lat=grid.lat[part], lon=grid.lon[:4],
                     ocean=grid.ocean[part, :4])  # fmt: skip
    config = sst.Config(
        horizon=24, given=6, holdouts=1, seeds=1, steps=1, forecaster=False, device="cpu"
    )
    found = sst.run(config, grid=region)
    assert found.probes == {}
    assert found.no_probes is not None
    assert "no polar cells" in found.no_probes
    images = view.figures(found)
    assert "sst-overlap.png" not in images
    assert "no polar cells" in view.report(found, images, "")
