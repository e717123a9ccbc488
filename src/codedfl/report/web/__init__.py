"""A small web server for pages of this machine: a secret address, loopback only unless told otherwise."""

from codedfl.report.web.addresses import check_host, check_port, new_token
from codedfl.report.web.messages import EventStream, Handler, WebRequest, WebResponse, WebRoute
from codedfl.report.web.server import PageServer

__all__ = [
    "EventStream",
    "Handler",
    "PageServer",
    "WebRequest",
    "WebResponse",
    "WebRoute",
    "check_host",
    "check_port",
    "new_token",
]
