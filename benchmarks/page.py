"""The explorer's page, measured in a real browser and under load: python -m benchmarks.page

Prints the median and 95th percentile from moving a slider to repainted theory and to the first simulated curve, the
same for every preset, then what 16 clients do to the server in a minute. Needs chromium
and playwright.
"""

import argparse
import http.client
import json
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from iclflow.explorer.page import CONTROLS, EIGEN_IDS, control_values
from iclflow.explorer.presets import PRESETS
from iclflow.explorer.state import State

MOVES = [
    ("heads", 4), ("heads", 5), ("dim", 5), ("dim", 4), ("context", 40), ("context", 31), ("noise", 0.5), ("noise", 0),
    ("log_init", -1.8), ("log_init", -2), ("rank", 2), ("rank", 1), ("dim", 8), ("heads", 8), ("heads", 9), ("dim", 4),
]  # fmt: skip
SET = """([id, value]) => new Promise(done => {
    const input = document.getElementById(id), plot = document.querySelector('#loss .js-plotly-plot');
    const painted = () => plot.data.slice(0, 2).map(trace => trace.x);
    const before = painted(), begun = performance.now(); let theory = null;
    const shown = () => {
        const now = performance.now() - begun, [first, second] = painted();
        if (first !== before[0] && theory === null) theory = now;
        if (second === before[1]) return;
        plot.removeListener('plotly_afterplot', shown);
        done([theory, now]);
    };
    plot.on('plotly_afterplot', shown);
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set.call(input, value);
    for (const kind of ['input', 'change']) input.dispatchEvent(new Event(kind, {bubbles: true}));
    setTimeout(() => done([theory, null]), 15000);
})"""
PRESET = """name => new Promise(done => {
    const plot = document.querySelector('#loss .js-plotly-plot'), begun = performance.now();
    const before = plot.data.slice(1).map(trace => trace.x);
    const shown = () => {
        const now = plot.data.slice(1).map(trace => trace.x);
        if (!now.length || now.at(-1) === before.at(-1)) return;
        plot.removeListener('plotly_afterplot', shown);
        done(performance.now() - begun);
    };
    plot.on('plotly_afterplot', shown);
    window.dash_clientside.set_props('preset', {value: name});
    setTimeout(() => done(null), 60000);
})"""


def latency(address: str, rounds: int, settle: float) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1300, "height": 900})
        tab.goto(address + "?seeds=1")
        tab.wait_for_timeout(1e3 * settle)  # shapes compile in the background
        times = []
        for _ in range(rounds):
            for name, value in MOVES:
                times.append(tab.evaluate(SET, [name, str(value)]))
                tab.wait_for_timeout(400)
        presets(tab)
        browser.close()
    for what, column in (("theory", 0), ("first simulated curve", 1)):
        seen = sorted(t[column] for t in times if t[column] is not None)
        p95 = seen[int(0.95 * (len(seen) - 1))]
        print(
            f"slider to {what}: median {statistics.median(seen):.0f} ms, p95 {p95:.0f} ms, {len(seen)} of {len(times)}"
        )


def presets(tab) -> None:
    """Every preset as it is chosen, and warm: with another first seed, its shape is compiled but its run is new."""
    for name, preset in PRESETS.items():
        chosen = tab.evaluate(PRESET, name)
        tab.wait_for_timeout(2000)
        warm = tab.evaluate(SET, ["seed", str(preset.seed + 100)])[1]
        tab.wait_for_timeout(500)
        first, again = ("none" if t is None else f"{t:.0f} ms" for t in (chosen, warm))
        print(f"{name}: first curve after {first}, warm {again}", flush=True)


def load(address: str, clients: int, seconds: float, pid: int) -> None:
    host = re.search(r"127\.0\.0\.1:\d+", address).group()
    output, results, end = dependencies(host), [], time.monotonic() + seconds

    def client(number: int) -> None:
        rng = random.Random(number)
        while time.monotonic() < end:
            sizes = {"heads": rng.randint(1, 9), "dim": rng.randint(2, 8), "context": rng.randint(4, 64), "seeds": 1}
            state = State.read({**sizes, "log_init": rng.uniform(-2.5, -0.5)})
            begun = time.perf_counter()
            status = post(host, body(state, output, f"client-{number}"))
            results.append((status, 1e3 * (time.perf_counter() - begun)))

    before = memory(pid)
    threads = [threading.Thread(target=client, args=(n,)) for n in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = sorted(t for _, t in results)
    errors = sum(status != 200 for status, _ in results)
    rate, middle, late = len(results) / seconds, statistics.median(took), took[int(0.95 * len(took))]
    print(f"{clients} clients for {seconds:.0f} s: {rate:.0f} requests/s, median {middle:.0f} ms, p95 {late:.0f} ms,")
    print(f"  {errors} errors, memory {before:.0f} -> {memory(pid):.0f} MiB")


def dependencies(host: str) -> str:
    line = http.client.HTTPConnection(host, timeout=30)
    line.request("GET", "/_dash-dependencies")
    return next(d["output"] for d in json.loads(line.getresponse().read()) if "python.children" in d["output"])


def body(state: State, output: str, client: str) -> bytes:
    values = zip((*CONTROLS, *EIGEN_IDS), control_values(state), strict=True)
    names = [part.rpartition(".") for part in output[2:-2].split("...")]
    return json.dumps(
        {
            "output": output,
            "outputs": [{"id": name, "property": prop} for name, _, prop in names],
            "inputs": [{"id": n, "property": "value", "value": v} for n, v in values],
            "changedPropIds": ["heads.value"],
            "state": [
                {"id": "axes", "property": "value", "value": ["time"]},
                {"id": "client", "property": "data", "value": client},
            ],
        }
    ).encode()


def post(host: str, data: bytes) -> int:
    line = http.client.HTTPConnection(host, timeout=60)
    try:
        line.request("POST", "/_dash-update-component", data, {"Content-Type": "application/json"})
        answer = line.getresponse()
        answer.read()
        return answer.status
    except OSError:
        return 0
    finally:
        line.close()


def memory(pid: int) -> float:
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text()).group(1)) / 1024


def main() -> None:
    flags = argparse.ArgumentParser()
    flags.add_argument("--rounds", type=int, default=3)
    flags.add_argument("--seconds", type=float, default=60)
    flags.add_argument("--settle", type=float, default=30, help="seconds in which shapes compile in the background")
    args = flags.parse_args()
    line = [sys.executable, "-m", "iclflow", "explore", "--port", "0", "--no-browser"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as server:
        try:
            address = re.match(r"(http://\S+)", server.stdout.readline()).group(1)
            latency(address, args.rounds, args.settle)
            load(address, 16, args.seconds, server.pid)
        finally:
            server.send_signal(signal.SIGINT)


if __name__ == "__main__":
    main()
