"""The page of the explorer, and the questions that it asks."""

from codedfl import __version__
from codedfl.errors import UsageError
from codedfl.report.explorer.session import ExplorerSession
from codedfl.report.pages import Document, Section, escaped
from codedfl.report.web import WebRequest, WebResponse, WebRoute

_LEAD = (
    '<p class="lead">Which scheme would be quickest, if the fleet were another? Move a slider: times are drawn again, '
    "and every number is what <code>codedfl plan</code> prints for the same scenario.</p>"
)
_STATUS = '<p id="status" role="status" aria-live="polite"></p>'
_NO_SCRIPTS = "<noscript><p>The explorer needs scripts; codedfl plan answers without.</p></noscript>"


def explorer_document(session: ExplorerSession) -> Document:
    """Return the page."""
    return Document(
        f"Explore {session.scenario.name}",
        [
            Section("What if", f'{_NO_SCRIPTS}<div id="sliders"></div>', "what-if"),
            Section("Ranking", f'{_STATUS}<div id="ranking"></div>', "ranks"),
            Section("The same on the command line", '<div id="command"></div>', "shell"),
        ],
        lead=_LEAD,
        data=session.describe(),
        scripts=("charts.js", "explore.js"),
        served=True,
        footer=f"<p>codedfl {escaped(__version__)}, on this machine only.</p>",
    )


def explorer_routes(session: ExplorerSession) -> dict[str, WebRoute]:
    """Return the routes of the explorer: its page, and ``plan``, which answers questions."""

    def page(request: WebRequest) -> WebResponse:
        return WebResponse.of_page(explorer_document(session))

    def answer(request: WebRequest) -> WebResponse:
        question = request.json()
        if not isinstance(question, dict):
            raise UsageError("a question is a JSON object with values and a number")
        return WebResponse.of_json(session.answer(question))

    return {"": WebRoute(page, ("GET",)), "plan": WebRoute(answer, ("POST",))}
