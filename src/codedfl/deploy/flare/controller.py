"""Our classes in FLARE's server: the controller of jobs, and the admission of sites.

The controller creates a carrier and calls the entry point that the job names. The admission refuses revoked sites.
"""

import json
import math
import time
import traceback
from pathlib import Path
from typing import Any, final

from codedfl.deploy.flare.carrier import FlareCarrier
from codedfl.deploy.flare.cells import CellRoute, restart_with
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

_STEP_SECONDS, _START_SECONDS = 3.0, 30.0
"""How long a site may take to accept a job, and to start its process; else it is asked again."""


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
        elif event_type == EventType.SYSTEM_START:
            engine, begun = fl_ctx.get_engine(), dict[tuple[str, str], float]()
            restart_with(engine, lambda job, site: start_again(engine, job, site, begun))


def start_again(engine: Any, job_id: str, site: str, begun: dict[tuple[str, str], float]) -> str:
    """Start the process of a running job at a site that was started again; return what came of it.

    ``begun`` has the times of earlier calls, by job and the site's registration: a process takes a while to start.

    FLARE itself starts a job at the sites that are connected when it begins, and never later. The steps are its own:
    the site is sent the job, asked for resources, and told to start; each step is subject to the site's policy.
    """
    from nvflare.apis.fl_constant import RunProcessKey
    from nvflare.apis.job_def import ALL_SITES
    from nvflare.apis.job_scheduler_spec import DispatchInfo

    runner, client = engine.job_runner, engine.get_client_from_name(site)
    job, process = runner.running_jobs.get(job_id), engine.run_processes.get(job_id)
    if client is None or job is None or process is None:
        return f"{site} is not connected, or the job is over"
    apps = [name for name, places in job.get_deployment().items() if site in places or ALL_SITES in places]
    if len(apps) != 1:
        return f"{site} has no part in the job"
    now, which = time.monotonic(), (job_id, client.token)
    if now - begun.get(which, -math.inf) < _START_SECONDS:
        return f"{site} is starting it"
    with engine.new_context() as context:
        message = runner._make_deploy_message(job, job.get_application(apps[0], context), apps[0], context)
        admin = engine.server.admin_server
        replies = admin.send_requests_and_get_reply_dict({client.token: message}, timeout_secs=_STEP_SECONDS)
        if replies.get(client.token) is None:
            return f"{site} does not answer"
        enough, token = engine.check_client_resources(job, {site: {}}, context).get(site, (False, ""))
        if not enough:
            return f"{site} has no resources for the job"
        begun[which] = now
        process[RunProcessKey.PARTICIPANTS][client.token] = client
        started = engine.start_client_job(job, {site: DispatchInfo(apps[0], {}, token)}, context)
    return "; ".join(str(one.reply.body) if one.reply else f"{site} does not answer" for one in started)


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
