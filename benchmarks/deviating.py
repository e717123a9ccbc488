"""Parties that deviate: a server that asks for what it must not have, and devices that lie.

python -m benchmarks deviating
"""

from typing import Any

from benchmarks import hostile_server
from benchmarks.lying_devices import devices


def main() -> dict[str, Any]:
    """Go through all sections."""
    print("  server")
    found = {"server": hostile_server.main()}
    print("  devices")
    return found | {"devices": devices()}
