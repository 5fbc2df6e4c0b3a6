"""The web application: pages that read a store, with no scripts except those of the report and the trend.

It answers only requests for this machine by name (a page elsewhere cannot reach it by a name of its own), and only
GET; nothing it does writes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from audit.report.figures import Figures
from audit.report.page.rendering import render_sheet
from audit.report.page.report_page import report_page
from audit.report.phrases.summary import overview
from audit.report.phrases.verdict import verdict
from audit.report.view.browse import PAGE, find_item, find_items
from audit.results import AuditResult
from audit.store import Store
from audit.store.runs import RunRecord
from backends.errors import ConfigError

_RUNS = 100  # in the list
_FIRST = 5  # questions on a run's own page
_SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
}


def view_app(store: Store, trend: Callable[[], str]) -> Starlette:
    """The application for a store open for reading; ``trend`` gives the page of its history."""
    pages = _Pages(store, trend)
    routes = {
        "/": pages.runs,
        "/trend": pages.trend,
        "/run/{run}": pages.run,
        "/run/{run}/report": pages.report,
        "/run/{run}/suite/{suite}": pages.items,
        "/run/{run}/suite/{suite}/item/{item:path}": pages.item,
    }
    return Starlette(
        routes=[Route(path, page, methods=["GET"]) for path, page in routes.items()],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"], www_redirect=False)],
        exception_handlers={HTTPException: _failed, ConfigError: _failed},
    )


class _Pages:
    """One page a method; Starlette runs them in threads."""

    def __init__(self, store: Store, trend: Callable[[], str]) -> None:
        self._store, self._trend = store, trend
        self._result = functools.lru_cache(_RUNS)(store.runs.finished_result)

    def runs(self, request: Request) -> Response:
        """The newest runs that hold the searched words: models, suites, what was found, and when."""
        search = request.query_params.get("q", "").strip()
        runs = [one for run in self._store.runs.all() if _holds(one := self._summary(run), search)]
        shown = runs[:_RUNS]
        return _page("runs", title="Runs", store=self._store.path.name, runs=shown, total=len(runs), search=search)

    def _summary(self, run: RunRecord) -> dict[str, Any]:
        """A row of the list of runs."""
        summary = {"id": run.id, "title": run.title, "started": run.started, "status": run.status}
        if not run.finished or run.status.startswith(("failed", "part ")):
            return summary | {"models": [], "suites": [], "found": ""}
        figures = Figures(result := self._result(run.id))
        titles = [info.title for info in result.suites]
        return summary | {"models": figures.models, "suites": titles, "found": " ".join(verdict(figures)[:1])}

    def trend(self, request: Request) -> Response:
        """The figures over the runs."""
        return HTMLResponse(self._trend(), headers=_SAFE)

    def run(self, request: Request) -> Response:
        """A run's findings, and its suites."""
        result = self._of(request)
        figures = Figures(result)
        suite, models = result.suites[0].name, figures.models[:2]
        first, _ = find_items(self._store, result, suite, models, search="", page=0)
        return _page(
            "run",
            title=result.title,
            **overview(figures),
            models=figures.models,
            side_by_side=models,
            first_suite=suite,
            items=first[:_FIRST],
        )

    def report(self, request: Request) -> Response:
        """The run's whole report."""
        return HTMLResponse(report_page(self._of(request), runs="/"), headers=_SAFE)

    def items(self, request: Request) -> Response:
        """A suite's items with the answers of the chosen models side by side."""
        result, suite = self._of(request), self._suite(request)
        models = _chosen(result, request.query_params.getlist("model"))
        search, asked = request.query_params.get("q", "").strip(), request.query_params.get("page", "")
        page = int(asked) if asked.isdecimal() and len(asked) < 7 else 0
        found, more = find_items(self._store, result, suite, models, search=search, page=page)

        def link(to: int) -> str:
            return "?" + urlencode([("q", search), *(("model", model) for model in models), ("page", to)])

        return _page(
            "items",
            title=suite,
            result=result,
            suite=suite,
            models=models,
            search=search,
            items=found,
            first=page * PAGE + 1,
            before=link(page - 1) if page else None,
            after=link(page + 1) if more else None,
        )

    def item(self, request: Request) -> Response:
        """One item: its whole prompt, and every model's answers."""
        result, suite = self._of(request), self._suite(request)
        found = find_item(self._store, result, suite, request.path_params["item"])
        if found is None:
            raise HTTPException(404, "This run has no such item.")
        names = [model.name for model in result.models]
        return _page("item", title=found.id, result=result, suite=suite, item=found, models=names)

    def _of(self, request: Request) -> AuditResult:
        return self._result(self._store.runs.find(request.path_params["run"]))

    def _suite(self, request: Request) -> str:
        suite = str(request.path_params["suite"])
        if suite not in [info.name for info in self._of(request).suites]:
            raise HTTPException(404, "This run has no such suite.")
        return suite


def _holds(run: Mapping[str, Any], search: str) -> bool:
    text = " ".join(map(str, run.values())).casefold()
    return all(word in text for word in search.casefold().split())


def _page(name: str, **context: Any) -> Response:
    return HTMLResponse(render_sheet(f"view/{name}.html.j2", form_action="'self'", **context), headers=_SAFE)


def _chosen(result: AuditResult, names: Sequence[str]) -> list[str]:
    """The requested models, in the run's order; the first two if none are requested."""
    known = [model.name for model in result.models]
    return [name for name in known if name in names] or known[:2]


def _failed(request: Request, error: Exception) -> Response:
    status, words = (error.status_code, error.detail) if isinstance(error, HTTPException) else (404, str(error))
    answer = render_sheet("view/failed.html.j2", title="Not found" if status == 404 else "Not possible", words=words)
    return HTMLResponse(answer, status, headers=_SAFE)
