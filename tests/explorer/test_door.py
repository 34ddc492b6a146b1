"""Foreign requests are refused, and no request breaks the server or leaks a file."""

import http.client
import json
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from flask import Flask
from werkzeug.serving import make_server

import iclflow as icl
from iclflow.explorer import server as server_room
from iclflow.explorer.jobs import Jobs
from iclflow.explorer.page import CONTROLS, EIGEN_IDS
from iclflow.explorer.saved import Saved
from iclflow.explorer.server import make_app
from iclflow.explorer.theory_view import outline
from iclflow.sweeps.results import no_formula

PORT = 8050
HOME = {"Host": f"127.0.0.1:{PORT}"}
HOSTS = [
    "evil.example", "evil.example:8050", "127.0.0.1", "127.0.0.1:80", "127.0.0.1:8051", "localhost", "localhost:80",
    "127.0.0.1.evil.example:8050", "localhost.evil.example:8050", "127.0.0.2:8050", "0.0.0.0:8050", "[::1]:8050",
    "127.0.0.1:8050.evil.example", "evil.example@127.0.0.1:8050", "127.0.0.1:8050@evil.example", "2130706433:8050",
    "0x7f000001:8050", "017700000001:8050", "127.1:8050", "", " 127.0.0.1:8050 x", "127.0.0.1:8050/../", "a" * 3000,
]  # fmt: skip
ORIGINS = [
    "http://evil.example", "https://127.0.0.1:8050", "http://127.0.0.1", "http://127.0.0.1:8051", "null", "file://",
    "http://localhost", "http://127.0.0.1:8050.evil.example", "http://evil.example:8050", "http://127.0.0.1:8050/",
    "http://user@127.0.0.1:8050", "chrome-extension://abc", "http://[::1]:8050", "ws://127.0.0.1:8050", "",
    "http://127.0.0.1:8050 http://evil.example", "HTTP://EVIL.EXAMPLE",
]  # fmt: skip
ROUTES = ["/", "/_dash-layout", "/_dash-dependencies", "/assets/explorer.js", "/_dash-update-component", "/nothing"]


class Idle(Jobs):
    """Accepts every job without simulating it, and has the theory of what takes no seconds: of the rest the levels."""

    def work(self, job):
        job.done = True

    def think(self, client, ticket, state):
        quick = state.dim <= 3 and state.layers == 1 and state.log_init < 0
        return super().think(client, ticket, state) if quick else self.thinkers.submit(outline, state)


@pytest.fixture(scope="module")
def client():
    jobs = Idle()
    yield make_app(PORT, None, jobs).server.test_client()
    jobs.close()


def test_there_are_forty_hostile_names():
    assert len(HOSTS) + len(ORIGINS) >= 40


@pytest.mark.parametrize("host", HOSTS)
def test_a_foreign_host_is_refused_on_every_route_and_method(client, host):
    for route in ROUTES:
        for method in ("GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS"):
            assert client.open(route, method=method, headers={"Host": host}).status_code == 403


@pytest.mark.parametrize("origin", ORIGINS)
def test_a_foreign_origin_is_refused_on_every_route_and_method(client, origin):
    for route in ROUTES:
        for method in ("GET", "POST", "HEAD", "PUT"):
            answer = client.open(route, method=method, headers={**HOME, "Origin": origin})
            assert answer.status_code == 403


def test_a_request_from_another_site_is_refused(client):
    for site in ("cross-site", "same-site"):
        assert client.get("/", headers={**HOME, "Sec-Fetch-Site": site}).status_code == 403
        clicked = {**HOME, "Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        assert client.get("/?dim=3", headers=clicked).status_code == 200
        assert client.get("/_dash-layout", headers=clicked).status_code == 403
        assert client.post("/", headers=clicked).status_code == 403


def test_the_page_itself_is_served_with_its_guards(client):
    for host in ("127.0.0.1", "localhost"):
        answer = client.get("/", headers={"Host": f"{host}:{PORT}", "Origin": f"http://{host}:{PORT}"})
        assert answer.status_code == 200
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe-eval" not in policy
        assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        assert client.open("/", method=method, headers=HOME).status_code == 405


@pytest.fixture(scope="module")
def socket():
    """A real server: paths arrive there as they were sent."""
    server = make_server("127.0.0.1", 0, Flask("waiting"), threaded=True)
    jobs = Jobs()
    server.app = make_app(server.port, None, jobs).server
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.port
    server.shutdown()
    thread.join()
    server.server_close()
    jobs.close()


def test_three_hundred_ways_out_of_the_directory_lead_nowhere(socket):
    steps = ["../", "..%2f", "%2e%2e/", "%2e%2e%2f", "..\\", "..%5c", "....//", "..;/", "%252e%252e/", "/./../"]
    goals = ["etc/passwd", "etc/hostname", "proc/self/environ", "pyproject.toml", "src/iclflow/config.py"]
    bases = [
        "/",
        "/assets/",
        "/_dash-component-suites/",
        "/_dash-component-suites/dash/",
        "/assets/./",
        "/_favicon.ico/",
    ]
    paths = [base + step * depth + goal for base in bases for step in steps for goal in goals for depth in (4,)]
    assert len(paths) >= 300
    for path in paths:
        line = http.client.HTTPConnection("127.0.0.1", socket, timeout=20)
        line.putrequest("GET", path, skip_host=True)
        line.putheader("Host", f"127.0.0.1:{socket}")
        line.endheaders()
        answer = line.getresponse()
        assert answer.status < 500
        text = answer.read().decode(errors="replace")
        line.close()
        assert "root:" not in text
        assert "[project]" not in text
        assert "PATH=" not in text
        assert "class Task(" not in text


def body(values, output="..loss.figure...theory.data..", changed="heads.value"):
    inputs = [{"id": n, "property": "value", "value": v} for n, v in zip((*CONTROLS, *EIGEN_IDS), values, strict=True)]
    axes = {"id": "axes", "property": "value", "value": ["time"]}
    names = [part.rpartition(".") for part in output[2:-2].split("...")]
    outputs = [{"id": name, "property": prop} for name, _, prop in names]
    return {"output": output, "outputs": outputs, "inputs": inputs, "changedPropIds": [changed],
            "state": [axes, {"id": "client", "property": "data", "value": "x"}]}  # fmt: skip


def known_output(client) -> str:
    callbacks = client.get("/_dash-dependencies", headers=HOME).get_json()
    return next(d["output"] for d in callbacks if "python.children" in d["output"])


def test_five_hundred_nonsense_parameter_sets_never_break_it(client):
    rng = np.random.default_rng(0)
    pool = [None, True, -1, 0, 1e308, -1e308, "nan", "inf", "", "x" * 5000, [], [1, 2], {}, {"a": 1}, "<script>",
            "../..", 2, 3, 16, 1e-9, "linear", "free", "merged", "sample"]  # fmt: skip
    output = known_output(client)
    codes = []
    for number in range(500):
        values = [pool[i] for i in rng.integers(len(pool), size=len(CONTROLS) + len(EIGEN_IDS))]
        request = body(values, "..nothing.figure.." if number % 5 else output)
        if number % 7 == 0:
            request.pop(["output", "inputs", "state", "changedPropIds"][number % 4])
        if number % 11 == 0:
            request["inputs"] = "inputs"
        codes.append(client.post("/_dash-update-component", json=request, headers=HOME).status_code)
    assert max(codes) < 500
    assert 200 in codes


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"output": 3}', b"[" * 20_000, b"1" * 300_000]
)
def test_broken_and_oversize_bodies_are_refused(client, data):
    answer = client.post("/_dash-update-component", data=data, headers={**HOME, "Content-Type": "application/json"})
    assert 400 <= answer.status_code < 500
    assert len(answer.data) < 200


def test_what_the_controls_say_is_answered_with_theory(client):
    from iclflow.explorer.page import control_values
    from iclflow.explorer.state import State

    state = State.read({"log_init": -3, "dim": 3})
    answer = client.post(
        "/_dash-update-component", json=body(control_values(state), known_output(client)), headers=HOME
    )
    response = json.loads(answer.data)["response"]
    assert response["command"]["children"] == state.command()
    assert "2 of" not in response["note-heads"]["children"]


def test_ctrl_c_stops_at_once_even_while_shapes_are_being_compiled():
    script = (  # a job in the background ignores Ctrl-C until it is told to hear it
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from iclflow.cli import main; main(['explore', '--port', '0', '--no-browser'])"
    )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", script], **pipes) as server:
        try:
            server.stdout.readline()
            time.sleep(1.5)
            server.send_signal(signal.SIGINT)
            assert server.wait(timeout=5) == 0
            assert server.stderr.read() == ""
        finally:
            server.kill()


def test_connections_that_say_nothing_are_few_and_end(monkeypatch):
    monkeypatch.setattr(server_room.Impatient, "timeout", 1.0)
    hello = Flask("hello")
    hello.add_url_rule("/", "hello", lambda: "hello")
    server = server_room.Bounded("127.0.0.1", 0, hello, handler=server_room.Impatient)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    from socket import create_connection

    silent = [create_connection(("127.0.0.1", server.port)) for _ in range(100)]
    try:
        begun = time.monotonic()
        time.sleep(0.3)
        assert threading.active_count() < server_room.MOST_CONNECTIONS + 20
        answer = None
        while answer is None and time.monotonic() - begun < 5:
            home = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
            try:
                home.request("GET", "/")
                answer = home.getresponse().read()
            except OSError:  # closed at once while all places are taken
                time.sleep(0.1)
            finally:
                home.close()
        assert answer == b"hello"
    finally:
        for one in silent:
            one.close()
        server.shutdown()
        server.server_close()


def test_the_name_of_a_folder_is_no_code_to_copy(tmp_path, quiet):
    import ast

    folder = tmp_path / 'a"); import os; os.system("x'
    icl.train(icl.Task(dim=2), icl.Merged(heads=2), samples=50, lr=0.1, steps=5, out=folder)
    shown = Saved(tmp_path).show(0)
    [line] = ast.parse(shown.python).body
    assert isinstance(line, ast.Assign)
    assert [argument.value for argument in line.value.args] == [str(folder)]


def test_text_in_a_table_is_no_formula():
    for text in ("=1+1", "+1", "-1", "@x", "\t=1"):
        assert no_formula(text) == f"'{text}"
    assert [no_formula(cell) for cell in ("ok", -1.0, "", None)] == ["ok", -1.0, "", None]
