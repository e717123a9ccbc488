"""What FLARE runs on the server for a job: it makes a carrier and calls the entry point that the job names."""

import json
import traceback
from pathlib import Path
from typing import Any, final

from codedfl.deploy.flare.carrier import FlareCarrier
from codedfl.deploy.flare.cells import CellRoute
from codedfl.deploy.flare.names import ARGUMENTS, OUTCOME, resolve
from codedfl.deploy.flare.sites import read_site
from codedfl.errors import CodedflError
from codedfl.storage import write_json

try:
    from nvflare.apis.impl.controller import Controller
except ModuleNotFoundError:  # only FLARE makes objects of this class, so it is there when it is needed
    Controller = object

__all__ = ["CarrierController"]


@final
class CarrierController(Controller):  # type: ignore[misc]
    """Calls ``entry(carrier, arguments)`` and writes down what came of it.

    The arguments are those of the job, with the server's own ``site.toml`` added as ``site``.
    """

    def __init__(self, entry: str, beat: float = 5.0, misses: int = 3) -> None:
        super().__init__()
        self._entry = entry
        self._beat, self._misses = beat, misses

    def start_controller(self, fl_ctx: Any) -> None:
        """Nothing is to be made ready."""

    def stop_controller(self, fl_ctx: Any) -> None:
        """Nothing is left open."""

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:
        """Run the entry point; what it raises fails the job."""
        engine, job = fl_ctx.get_engine(), fl_ctx.get_job_id()
        workspace = engine.get_workspace()
        outcome = Path(workspace.get_run_dir(job)) / OUTCOME
        route = CellRoute(engine, job)
        carrier = FlareCarrier(route, lambda: bool(abort_signal.triggered), beat=self._beat, misses=self._misses)
        try:
            arguments = json.loads((Path(workspace.get_app_config_dir(job)) / ARGUMENTS).read_text(encoding="utf-8"))
            site = read_site(Path(workspace.get_root_dir()))
            result = resolve(self._entry)(carrier, arguments | {"site": site})
            write_json(outcome, {"result": result})
        except CodedflError as error:
            write_json(outcome, {"error": str(error), "kind": type(error).__name__})
            self.system_panic(str(error), fl_ctx)
        except Exception as error:
            last = traceback.format_exception(error)[-1].strip()
            write_json(outcome, {"error": last, "kind": None, "traceback": traceback.format_exc()})
            raise
        finally:
            carrier.close()
