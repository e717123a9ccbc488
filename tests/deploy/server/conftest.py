"""Sites in this process that hold the data of the contract of engines."""

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def sites() -> Iterator[Any]:
    from contracts.test_engines import given  # imported earlier, the package would escape checks of shapes
    from fleets import fleet

    with fleet(given()) as made:
        yield made
