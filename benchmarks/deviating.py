"""Parties that deviate: devices that lie.

python -m benchmarks deviating
"""

from typing import Any

from benchmarks.lying_devices import devices


def main() -> dict[str, Any]:
    """Go through all sections."""
    print("  devices")
    return {"devices": devices()}
