"""Finding 5: class names, file paths and column names reach the server in messages."""

from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="kits need NVIDIA FLARE, of the extra 'flare'")

from codedfl.errors import EngineError
from security.findings.kits import COLUMNS, LABELS, KitSites, kit_sites, scenario


def heard(sites: KitSites, folder: Path) -> list[str]:
    """Which private words are in what the server receives, in any message."""
    together = b" ".join(payload for _, payload in sites.recording.received)
    return [word for word in (*LABELS, *COLUMNS, "data.csv", str(folder)) if word.encode() in together]


def test_a_training_tells_no_name_of_a_class(tmp_path: Path) -> None:
    plain = scenario(**{"features.kind": "none"})
    with kit_sites(tmp_path, plain) as sites:
        run = sites.deploy(plain, tmp_path / "run")
        assert heard(sites, tmp_path) == []
    assert run.load_model().classes == (0, 1)
    assert "numbered from 0" in run.summary["deployment"]["class_names"]


@pytest.mark.parametrize("trouble", ["no file", "an empty cell", "a cell that is no number"])
def test_an_error_tells_neither_path_nor_column_nor_cell(trouble: str, tmp_path: Path) -> None:
    with kit_sites(tmp_path, scenario()) as sites:
        path = sites.kits.device("device-2") / "data.csv"
        first, second, *others = path.read_text(encoding="utf-8").splitlines()
        cells = second.split(",")
        changed = ",".join(["" if trouble == "an empty cell" else "4711 copies", *cells[1:]])
        path.unlink() if trouble == "no file" else path.write_text("\n".join([first, changed, *others]) + "\n")
        with pytest.raises(EngineError) as error:
            sites.deploy(scenario(), tmp_path / "run")
        assert heard(sites, tmp_path) == []
    assert not any(word in str(error.value) for word in (*COLUMNS, "4711", "data.csv", str(tmp_path)))


def test_names_that_are_declared_public_are_used(tmp_path: Path) -> None:
    public = scenario(**{"features.kind": "none", "data.classes": list(LABELS)})
    with kit_sites(tmp_path, public) as sites:
        run = sites.deploy(public, tmp_path / "run")
    assert run.load_model().classes == LABELS
