"""The server: it listens on the loopback interface and answers only its own page.

A page of another site can make a browser send requests here, and can have a host name of its own resolve to 127.0.0.1.
So every request must name this server in `Host`, and none may come from another `Origin`. Large bodies are refused, and
the page may not load anything from elsewhere.
"""

import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from dash import Dash
from flask import Flask, Response, abort, request
from werkzeug.exceptions import HTTPException
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from iclflow.explorer.callbacks import connect
from iclflow.explorer.jobs import Jobs
from iclflow.explorer.page import layout
from iclflow.explorer.saved import Saved

__all__ = ["make_app", "serve"]

HOST = "127.0.0.1"
LARGEST_BODY = 256 * 1024  # bytes
PATIENCE, MOST_CONNECTIONS = 20.0, 64  # seconds of silence, and connections, after which one is closed
TURN = 5e-4  # seconds after which a thread that computes theory lets one that trains or answers go on
METHODS = ("GET", "HEAD", "POST")
HEAD = """<!DOCTYPE html>
<html lang="en">
<head>{%metas%}<title>{%title%}</title><link rel="icon" href="data:,">{%css%}</head>
<body>{%app_entry%}<footer>{%config%}{%scripts%}{%renderer%}</footer></body>
</html>"""


def make_app(port: int, saved: Path | None = None, jobs: Jobs | None = None) -> Dash:
    """The page and its guards, for a server at this port."""
    server = Flask("iclflow.explorer")
    server.config["MAX_CONTENT_LENGTH"] = LARGEST_BODY
    guard(server, {f"{name}:{port}" for name in (HOST, "localhost")})
    runs = Saved(saved)
    flask = cast("Callable[[], Any]", server)  # Dash documents a server instance here but declares only a function
    app = Dash(
        "iclflow.explorer", server=flask, assets_folder=str(Path(__file__).parent / "assets"), index_string=HEAD,
        title="iclflow explorer", update_title="", serve_locally=True, suppress_callback_exceptions=False,
        add_log_handler=False, enable_mcp=False,
    )  # fmt: skip
    app.layout = lambda: layout(runs.names)
    connect(app, jobs or Jobs(), runs)
    policy = "; ".join(
        [
            "default-src 'none'", "script-src 'self' " + " ".join(f"'{h}'" for h in hashes(app)),
            "style-src 'self' 'unsafe-inline'", "img-src 'self' data: blob:", "font-src 'self' data:",
            "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
        ]
    )  # fmt: skip

    @server.after_request
    def dress(answer: Response) -> Response:
        answer.headers["Content-Security-Policy"] = policy
        answer.headers["X-Content-Type-Options"] = "nosniff"
        answer.headers["X-Frame-Options"] = "DENY"
        answer.headers["Referrer-Policy"] = "no-referrer"
        answer.headers["Cross-Origin-Resource-Policy"] = "same-origin"
        return answer

    return app


def hashes(app: Dash) -> list[str]:
    """The hashes of the scripts that Dash writes into the page itself."""
    return [h.strip("'") for h in app.csp_hashes()]


def guard(server: Flask, own: set[str]) -> None:
    """Refuse requests that do not come from the page itself; `own` are the names of this server."""
    origins = {f"http://{name}" for name in own}

    @server.before_request
    def refuse_strangers() -> None:
        if request.headers.get("Host", "").lower() not in own:
            abort(403)
        origin = request.headers.get("Origin")
        if origin is not None and origin.lower() not in origins:
            abort(403)
        if request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none") and not followed_link():
            abort(403)
        if request.method not in METHODS:
            abort(405)

    @server.errorhandler(Exception)
    def plain(error: Exception) -> Response:
        """Answer in one line; errors other than those of HTTP are also logged."""
        if isinstance(error, HTTPException):
            return Response(f"{error.code} {error.name}\n", error.code, mimetype="text/plain")
        logging.getLogger("iclflow").warning("request refused: %s: %s", type(error).__name__, str(error)[:200])
        return Response("400 Bad Request\n", 400, mimetype="text/plain")


def followed_link() -> bool:
    """Whether somebody followed a link to the page; frames are forbidden by the policy."""
    modes = request.headers.get("Sec-Fetch-Mode"), request.headers.get("Sec-Fetch-Dest")
    return request.method == "GET" and request.path == "/" and modes == ("navigate", "document")


class Impatient(WSGIRequestHandler):
    """Closes a connection that says nothing for some time."""

    timeout = PATIENCE


class Bounded(ThreadedWSGIServer):
    """A thread for each of a bounded number of connections; more of them are closed at once."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.free = threading.BoundedSemaphore(MOST_CONNECTIONS)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self.free.acquire(blocking=False):
            return self.shutdown_request(request)
        try:
            return super().process_request(request, client_address)
        except BaseException:  # no thread was started, which would have given the place back
            self.free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.free.release()


def serve(port: int, saved: Path | None, opened: Callable[[str], None] = lambda url: None) -> None:
    """Serve the page until Ctrl-C; `opened` is called with its address once it can be visited."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    sys.setswitchinterval(TURN)
    jobs = Jobs()
    socket = Bounded(HOST, port, Flask("waiting"), handler=Impatient)  # binds first: port 0 takes a free one
    socket.app = make_app(socket.port, saved, jobs).server
    jobs.warm()
    opened(f"http://{HOST}:{socket.port}/")
    try:
        socket.serve_forever()
    finally:
        jobs.close()
        socket.server_close()
