"""Who computes and when: virtual time, or real machines."""

from codedfl.deploy.protocol.carrier import Carrier, Delivered, Host, Peers
from codedfl.engines.contract import Answer, Engine, Reply
from codedfl.engines.virtual import VirtualEngine

__all__ = ["Answer", "Carrier", "Delivered", "Engine", "Host", "Peers", "Reply", "VirtualEngine"]
