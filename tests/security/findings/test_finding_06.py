"""Finding 6: with two devices each knows the other's gradient.

A site takes part with fewer than three devices only if its owner has lowered `least`.
"""

from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="kits need NVIDIA FLARE, of the extra 'flare'")

from codedfl.cli import main
from codedfl.errors import EngineError
from security.findings.kits import kit_sites, scenario
from tiny import is_one_sentence


def test_fewer_than_three_devices_are_refused_unless_the_owners_lower_it(tmp_path: Path) -> None:
    two = scenario(2)
    (tmp_path / "two.toml").write_text(two.to_toml(), encoding="utf-8")
    with kit_sites(tmp_path, two) as sites:
        with pytest.raises(EngineError, match="takes part with at least 3 devices, not 2") as error:
            sites.deploy(two, tmp_path / "run")
        assert is_one_sentence(str(error.value))
        for site in sites.sites:
            with pytest.raises(SystemExit) as done:
                main(["site", "agree", str(sites.kits.device(site)), str(tmp_path / "two.toml"), "--least", "2"])
            assert done.value.code == 0
            sites.restart(site)
        assert sites.deploy(two, tmp_path / "run").summary["epochs"] == 4
