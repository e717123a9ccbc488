"""Who computes and when: virtual time, or real machines."""

from codedfl.engines.contract import Answer, Engine, Reply
from codedfl.engines.virtual import VirtualEngine

__all__ = ["Answer", "Engine", "Reply", "VirtualEngine"]
