"""Our classes in FLARE's server: the controller of jobs, and the admission of sites.

The controller creates a carrier and calls the entry point that the job names. The admission refuses revoked sites.
"""

import json
import traceback
from pathlib import Path
from typing import Any, final

from codedfl.deploy.flare.carrier import FlareCarrier
from codedfl.deploy.flare.cells import CellRoute
from codedfl.deploy.flare.kits import ROOT, certificate_print
from codedfl.deploy.flare.names import ARGUMENTS, OUTCOME, resolve
from codedfl.deploy.flare.sites import load_own_plugins, read_site
from codedfl.errors import CodedflError, EngineError
from codedfl.storage import write_json

try:
    from nvflare.apis.fl_component import FLComponent
    from nvflare.apis.impl.controller import Controller
    from nvflare.private.fed.utils.identity_utils import IdentityVerifier
except ModuleNotFoundError:  # only FLARE creates objects of these classes
    Controller = FLComponent = IdentityVerifier = object


@final
class CarrierController(Controller):  # type: ignore[misc]
    """Calls ``entry(carrier, arguments)``, with the server's own ``site.toml`` as ``site``; writes the outcome."""

    def __init__(self, entry: str) -> None:
        super().__init__()
        self._entry = entry

    def start_controller(self, fl_ctx: Any) -> None:
        """Do nothing."""

    def stop_controller(self, fl_ctx: Any) -> None:
        """Do nothing."""

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:
        """Run the entry point; an error fails the job."""
        engine, job = fl_ctx.get_engine(), fl_ctx.get_job_id()
        workspace = engine.get_workspace()
        outcome = Path(workspace.get_run_dir(job)) / OUTCOME
        carrier = FlareCarrier(CellRoute(engine, job), lambda: bool(abort_signal.triggered))
        try:
            load_own_plugins()
            arguments = json.loads((Path(workspace.get_app_config_dir(job)) / ARGUMENTS).read_text(encoding="utf-8"))
            site = read_site(Path(workspace.get_root_dir()))
            write_json(outcome, {"result": resolve(self._entry)(carrier, arguments | {"site": site})})
        except CodedflError as error:
            write_json(outcome, {"error": str(error), "kind": type(error).__name__})
            self.system_panic(str(error), fl_ctx)
        except Exception as error:
            last = traceback.format_exception(error)[-1].strip()
            write_json(outcome, {"error": last, "kind": None, "traceback": traceback.format_exc()})
            raise
        finally:
            carrier.close()


@final
class Admission(FLComponent):  # type: ignore[misc]
    """Refuses sites whose name or certificate the server's own ``site.toml`` lists as ``revoked``.

    FLARE checks the name against the certificate, and the certificate against the authority; it knows no revocation.
    The list is read at every registration, so it applies without a restart.
    """

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Put our check of certificates in the place of FLARE's own, before any site can register."""
        from nvflare.apis.event_type import EventType

        if event_type == EventType.SYSTEM_BOOTSTRAP:
            engine = fl_ctx.get_engine()
            keeper = engine.server.client_manager.cred_keeper
            folder = Path(engine.get_workspace().get_root_dir())
            keeper.id_verifier = _Verifier(str(folder / "startup" / ROOT), folder)


@final
class _Verifier(IdentityVerifier):  # type: ignore[misc]
    """Verifies that a site is who it says, and not revoked."""

    def __init__(self, root: str, folder: Path) -> None:
        super().__init__(root)
        self._folder = folder

    def verify_common_name(self, asserted_cn: str, nonce: str, asserter_cert: Any, *given: Any, **named: Any) -> Any:
        """Verify as FLARE does, then refuse what is revoked; FLARE logs the reason."""
        found = super().verify_common_name(asserted_cn, nonce, asserter_cert, *given, **named)
        shown = certificate_print(asserter_cert)
        if {asserted_cn, shown} & set(read_site(self._folder).get("revoked", ())):
            raise EngineError(f"{asserted_cn} with the certificate {shown} is revoked; see `revoked` in site.toml")
        return found
