"""The door: loopback only, for pages that this server made.

A page of another site can make a browser send requests here, and a name of its choice can be made to point at
127.0.0.1. So every request must name this server in `Host`, and none may come from another `Origin`. Bodies are small,
answers are never sniffed, and the page may load nothing from elsewhere.
"""

import logging
from pathlib import Path
from typing import Any

from dash import Dash
from flask import Flask, Response, abort, request
from werkzeug.exceptions import HTTPException
from werkzeug.serving import make_server

from iclflow.explorer.callbacks import connect
from iclflow.explorer.jobs import Jobs
from iclflow.explorer.page import layout
from iclflow.explorer.saved import Saved

__all__ = ["make_app", "serve"]

HOST = "127.0.0.1"
LARGEST_BODY = 256 * 1024  # bytes
METHODS = ("GET", "HEAD", "POST")
HEAD = """<!DOCTYPE html>
<html lang="en">
<head>{%metas%}<title>{%title%}</title><link rel="icon" href="data:,">{%css%}</head>
<body>{%app_entry%}<footer>{%config%}{%scripts%}{%renderer%}</footer></body>
</html>"""


def make_app(port: int, saved: Path | None = None, jobs: Jobs | None = None) -> Dash:
    server = Flask("iclflow.explorer")
    server.config["MAX_CONTENT_LENGTH"] = LARGEST_BODY
    guard(server, {f"{name}:{port}" for name in (HOST, "localhost")})
    found = Saved(saved)
    app = Dash(
        "iclflow.explorer", server=server, assets_folder=str(Path(__file__).parent / "assets"), index_string=HEAD,
        title="iclflow explorer", update_title="", serve_locally=True, suppress_callback_exceptions=False,
        add_log_handler=False, enable_mcp=False,
    )  # fmt: skip
    app.layout = lambda: layout(found.names)
    connect(app, jobs or Jobs(), found)
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
    """Of the scripts that Dash writes into the page itself."""
    return [h.strip("'") for h in app.csp_hashes()]


def guard(server: Flask, own: set[str]) -> None:
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
    def plain(error: Exception) -> Any:
        """A request that makes no sense is the sender's mistake; anything else is told on the terminal too."""
        if isinstance(error, HTTPException):
            return Response(f"{error.code} {error.name}\n", error.code, mimetype="text/plain")
        logging.getLogger("iclflow").warning("request refused: %s: %s", type(error).__name__, str(error)[:200])
        return Response("400 Bad Request\n", 400, mimetype="text/plain")


def followed_link() -> bool:
    """Whether a person has clicked a link to the page; framing it is denied elsewhere."""
    modes = request.headers.get("Sec-Fetch-Mode"), request.headers.get("Sec-Fetch-Dest")
    return request.method == "GET" and request.path == "/" and modes == ("navigate", "document")


def serve(port: int, saved: Path | None, opened: Any = lambda url: None) -> None:
    """Until Ctrl-C, which ends `serve_forever` without a word."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    jobs = Jobs()
    socket = make_server(HOST, port, Flask("waiting"), threaded=True)  # binds first: port 0 takes a free one
    socket.app = make_app(socket.port, saved, jobs).server
    jobs.warm()
    opened(f"http://{HOST}:{socket.port}/")
    try:
        socket.serve_forever()
    finally:
        jobs.close()
        socket.server_close()
