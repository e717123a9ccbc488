"""Models without faults.

Nothing of codedfl is imported at the top: pytest may read this file before the shape checks are installed.
"""

import numpy as np
import pytest


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """The models of virtual time."""
    from codedfl.runs import execute
    from contracts.test_engines import given
    from deploy.server.faults.trouble import chosen, model

    return {
        name: model(execute(chosen(name), tmp_path_factory.mktemp(name) / "run", problem=given))
        for name in ("conventional", "sealed", "sealed-coded")
    }
