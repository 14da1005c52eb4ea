"""The page of the SST experiment: its tables are those of the records."""

import json
import re
from pathlib import Path

import pytest

from smnn.experiments.sst import docs
from smnn.experiments.sst import references as simple
from smnn.experiments.sst import run as sst


class TestPage:
    root = Path(__file__).resolve().parents[2]

    def records(self) -> list[dict[str, object]]:
        folder = self.root / "benchmarks" / "results"
        names = ("sst_epyc.json", "scaling_h200.json")
        return [json.loads((folder / name).read_text()) for name in names]

    def test_tables_are_those_of_the_records(self) -> None:
        page = (self.root / "docs" / "sst.md").read_text()
        assert page == docs.fill(page, docs.sections(*self.records()))

    def test_the_record_says_what_was_to_be_shown(self) -> None:
        record, _ = self.records()
        scores = record["holdouts"][0]["scores"]  # type: ignore[index]
        ours = scores[simple.COUPLED]
        for name in simple.REFERENCES:
            assert ours["relative_mse"] < scores[name]["relative_mse"]
        for entry in record["networks"]:  # type: ignore[attr-defined]
            if entry["protocol"] == sst.HISTORY:
                assert ours["relative_mse"] < entry["scores"]["relative_mse"]

    def test_pictures_are_there(self) -> None:
        page = (self.root / "docs" / "sst.md").read_text()
        for name in re.findall(r"\]\((assets/[^)]+)\)", page):
            assert (self.root / "docs" / name).read_bytes().startswith(b"\x89PNG")

    def test_marks_are_needed(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="the page has no <!-- main:start -->"):
            docs.fill("nothing", {"main": "x"})

    def test_the_script_fills_a_page(self, tmp_path: Path) -> None:
        page = tmp_path / "sst.md"
        text = (self.root / "docs" / "sst.md").read_text()
        emptied = re.sub(r"(:start -->).*?(<!-- \w+:end)", r"\1\n\2", text, flags=re.DOTALL)
        assert emptied != text
        page.write_text(emptied)
        folder = self.root / "benchmarks" / "results"
        assert docs.main([str(page), "--sst", str(folder / "sst_epyc.json"),
                          "--scaling", str(folder / "scaling_h200.json")]) == 0  # fmt: skip
        assert page.read_text() == text
