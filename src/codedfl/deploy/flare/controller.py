"""The FLARE controller of the server's job: creates a carrier and calls the entry point that the job names."""

import json
import traceback
from pathlib import Path
from typing import Any, final

from codedfl.deploy.flare.carrier import FlareCarrier
from codedfl.deploy.flare.cells import CellRoute
from codedfl.deploy.flare.names import ARGUMENTS, OUTCOME, resolve
from codedfl.deploy.flare.sites import load_own_plugins, read_site
from codedfl.errors import CodedflError
from codedfl.storage import write_json

try:
    from nvflare.apis.impl.controller import Controller
except ModuleNotFoundError:  # only FLARE creates objects of this class
    Controller = object


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
