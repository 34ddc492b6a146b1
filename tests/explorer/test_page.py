"""The page in a real browser: every control moved, what it shows compared with what Python computes."""

import http.client
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import iclflow as icl
from browser import needs_browser, open_browser
from iclflow.explorer.presets import PRESETS
from iclflow.explorer.state import State
from iclflow.explorer.theory_view import theory_view

pytestmark = needs_browser
LONG = "?data=sample&log_samples=5&dim=16&context=64&seeds=1&model=merged"  # to draw; its theory is quick
TRACES = "document.querySelector('#{} .js-plotly-plot').data"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    where = tmp_path_factory.mktemp("saved")
    icl.train(icl.Task(dim=2), icl.Separate(heads=2), init=0.05, out=where / "mine", seed=3)
    return where


@pytest.fixture(scope="module")
def address(saved):
    script = (  # a job in the background ignores Ctrl-C until it is told to hear it
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"from iclflow.cli import main; main(['explore', {str(saved)!r}, '--port', '0', '--no-browser'])"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as server:
        try:
            yield re.match(r"(http://127\.0\.0\.1:\d+/)", server.stdout.readline()).group(1)
            server.send_signal(signal.SIGINT)
            assert server.wait(timeout=20) == 0
        finally:
            server.kill()


@pytest.fixture(scope="module")
def page(address):
    """One tab for all tests, watched for requests elsewhere and for complaints."""
    with open_browser() as browser:
        tab = browser.new_page(viewport={"width": 1300, "height": 900})
        tab.asked, tab.complaints = [], []
        tab.on("request", lambda request: tab.asked.append(request.url))
        tab.on("console", lambda message: tab.complaints.append(message.text))
        tab.on("pageerror", lambda error: tab.complaints.append(str(error)))
        tab.on("response", lambda answer: answer.status >= 400 and tab.complaints.append(answer.url))
        yield tab
        assert all(url.startswith((address, "data:", "blob:")) for url in tab.asked)
        assert tab.complaints == []


def load(page, url: str) -> None:
    """Load the page and wait until all its pictures are there."""
    page.goto(url)
    pictures = "['loss', 'gains', 'values'].every(name => document.querySelector(`#${name} .js-plotly-plot`)?.data)"
    until(page, f"window.Plotly && {pictures}")


def open_state(page, address, state: State, afresh: bool = False) -> None:
    """Show a state: by loading the page, or in the page that is there, as a link to it does."""
    if afresh or not page.url.startswith(address) or page.inner_text("#command") == state.command():
        load(page, address + state.to_query())
    else:
        page.evaluate("search => dash_clientside.set_props('url', {search: search})", state.to_query())
    until(page, f"document.querySelector('#command').textContent === {state.command()!r}")
    settled(page)


def until(page, expression: str, seconds: float = 60) -> None:
    """Asked from outside: the page's policy forbids evaluating text inside it."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, (expression, page.inner_text("#progress"), page.inner_text("#command"))
        page.wait_for_timeout(30)


def settled(page, seconds=90) -> None:
    until(page, "document.querySelector('#progress')?.textContent.startsWith('done')", seconds)
    answered(page)


def answered(page) -> None:
    """Wait until all callbacks have been called and what they changed is on the screen."""
    until(page, "Object.values(store.getState().callbacks).every(calls => !calls.length)")
    page.evaluate("new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))")


def theory_on(page) -> tuple[np.ndarray, np.ndarray]:
    trace = page.evaluate(TRACES.format("loss") + "[0]")
    return np.array(trace["x"], float), np.array(trace["y"], float)


def seeds_on(page) -> list[dict]:
    return page.evaluate(TRACES.format("loss") + ".slice(1).reverse().map(t => ({x: t.x, y: t.y}))")


def move(page, name: str, value) -> None:
    """Set a value and notify the browser, as a person who moves the slider does."""
    page.evaluate(
        """([id, value]) => {
            const input = document.getElementById(id);
            Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set.call(input, value);
            for (const kind of ['input', 'change']) input.dispatchEvent(new Event(kind, {bubbles: true}));
        }""",
        [name, str(value)],
    )


def pick(page, name: str, words: str) -> None:
    page.locator(f"#{name} label", has_text=re.compile(f"^{re.escape(words)}$")).click()


def expect_theory(page, state: State) -> None:
    """Wait until the page shows the theory of a state, then compare it number by number."""
    view = theory_view(state)
    until(page, f"document.querySelector('#command').textContent === {state.command()!r}")
    until(page, f"{TRACES.format('loss')}[0].x.at(-1) === {float(view.time[-1])!r}")
    time_shown, loss_shown = theory_on(page)
    np.testing.assert_allclose(time_shown, view.time, rtol=1e-9)
    np.testing.assert_allclose(loss_shown, view.loss, atol=1e-5)


def test_it_opens_with_a_staircase_and_says_so(page, address):
    state = State()
    open_state(page, address, state)
    expect_theory(page, state)
    run = icl.train(icl.Task(), icl.Separate(heads=5), init=0.01, seeds=3)
    shown = seeds_on(page)
    assert len(shown) == 3
    for seed, curve in zip(run.seeds, shown, strict=True):
        assert curve["y"][-1] == pytest.approx(float(run.select(seed).loss[-1]), abs=1e-4)
    assert page.inner_text("#sentence") == "the end: four of four components learned"
    assert page.inner_text("#algorithm") == "least squares, shrunk"
    shapes = "document.querySelector('#loss .js-plotly-plot').layout.shapes"
    levels = page.evaluate(shapes + ".filter(s => s.legendgroup === 'plateaus (theory)').map(s => s.y0)")
    np.testing.assert_allclose(levels, icl.theory.plateau_losses(icl.Task()))


SLIDERS = {"heads": 6, "dim": 3, "context": 60, "noise": 0.5, "log_init": -1.5, "seeds": 2, "seed": 7, "rank": 2}


def test_every_slider_moves_theory_and_simulation(page, address):
    state = State(seeds=1, log_init=-1.5)
    open_state(page, address, state)
    for name, value in SLIDERS.items():
        move(page, name, value)
        state = state.with_(**{name: value})
        expect_theory(page, state)
    settled(page)
    assert len(seeds_on(page)) == 2
    assert State.from_query(page.evaluate("location.search")) == state


def test_every_choice_moves_theory(page, address):
    state = State(seeds=1, log_init=-1.5, dim=3, model="merged", log_lr=-2.0)
    open_state(page, address, state)
    steps = [
        ("spectrum", "white", {"spectrum": "white", "model": "merged"}), ("model", "separate", {"model": "separate"}),
        ("spectrum", "power law", {"spectrum": "power"}), ("tasks", "power law", {"tasks": "power"}),
        ("model", "merged", {"model": "merged"}), ("normalize", "1/(N+1)", {"normalize": "tokens"}),
        ("rule", "descent", {"rule": "descent"}), ("spectrum", "linear", {"spectrum": "linear"}),
        ("data", "sample", {"data": "sample"}), ("normalize", "none", {"normalize": "none"}),
    ]  # fmt: skip
    for name, words, change in steps:
        pick(page, name, words)
        state = state.with_(**change)
        if (state.model, state.spectrum) != ("separate", "white"):  # ties: levels only
            expect_theory(page, state)
        if name == "tasks":
            for slider, value in (("exponent", 1.5), ("task_exponent", -0.5)):
                move(page, slider, value)
                state = state.with_(**{slider: value})
                expect_theory(page, state)
    for name, value in (("log_samples", 3.0), ("log_lr", -2.3)):
        move(page, name, value)
        state = state.with_(**{name: value})
        expect_theory(page, state)
    settled(page)


def test_eigenvalues_can_be_dragged(page, address):
    state = State.read({"spectrum": "free", "dim": 3, "seeds": 1, "log_init": -1.5})
    open_state(page, address, state)
    assert page.locator("#free > div:visible").count() == 3
    move(page, "eigenvalue-0", 0.2)
    wanted = State.read({**vars(state), "eigenvalues": [0.2, *state.eigenvalues[1:]]})
    expect_theory(page, wanted)
    assert page.input_value("#number-eigenvalue-0") == "0.2"
    page.fill("#number-eigenvalue-1", "0.437")  # between two places of the slider
    page.keyboard.press("Enter")
    expect_theory(page, State.read({**vars(state), "eigenvalues": [0.2, 0.437, state.eigenvalues[2]]}))


def test_all_pictures_share_one_time_axis_and_old_curves_fade_at_once(page, address):
    state = State(seeds=1, log_init=-1.5, dim=3)
    open_state(page, address, state)
    ranges = (
        "['loss', 'gains', 'values'].map(id => document.querySelector(`#${id} .js-plotly-plot`).layout.xaxis)"
        ".map(axis => axis.type + axis.range.map(x => x.toPrecision(9)))"
    )
    for kind in ("linear", "log"):
        page.locator("#axes label", has_text="log time").click()
        until(page, ranges + f".every(range => range.startsWith('{kind}'))")
        assert len(set(page.evaluate(ranges))) == 1
    page.route("**/_dash-update-component*", lambda route: None)  # before any answer
    move(page, "heads", 6)
    until(page, "document.querySelector('#pictures').classList.contains('faded')", 5)
    page.unroute("**/_dash-update-component*")
    load(page, address)  # what was held is never answered


def test_the_keyboard_is_enough(page, address):
    state = State(seeds=1, log_init=-1.5, dim=3)
    open_state(page, address, state)
    page.focus("#heads")
    page.keyboard.press("ArrowRight")
    expect_theory(page, state.with_(heads=6))
    unnamed = page.evaluate(
        "[...document.querySelectorAll('input, button')].filter(e => e.offsetParent && !e.labels?.length && "
        "!e.textContent.trim() && !e.getAttribute('aria-label') && !e.ariaHidden && "
        "!e.closest('.js-plotly-plot')).map(e => e.id)"
    )
    assert unnamed == []


def test_a_late_answer_about_a_state_that_was_left_does_not_stay(page, address):
    state, held = State(seeds=1, log_init=-1.5, dim=3), []
    open_state(page, address, state)
    hold = lambda route: route.continue_() if held or "tick" not in asked(route) else held.append(route)
    asked = lambda route: route.request.post_data_json["changedPropIds"][0]
    page.route("**/_dash-update-component*", hold)
    move(page, "heads", 6)
    until(page, f"document.querySelector('#command').textContent === {state.with_(heads=6).command()!r}")
    while not held:
        page.wait_for_timeout(30)
    answer = held[0].fetch()
    while not answer.json()["response"]["sent"]["data"]["everything"]:
        answer = held[0].fetch()
    move(page, "heads", 7)
    until(page, f"document.querySelector('#command').textContent === {state.with_(heads=7).command()!r}")
    held[0].fulfill(response=answer)
    page.unroute("**/_dash-update-component*")
    expect_theory(page, state.with_(heads=7))
    settled(page)
    assert len(page.evaluate(TRACES.format("values") + ".filter(trace => trace.name.startsWith('head'))")) == 7


def test_the_cursor_tells_the_plateau_and_shows_its_weights(page, address):
    state = State(seeds=1, log_init=-3.0)
    open_state(page, address, state)
    move(page, "cursor", 0)
    until(page, "document.querySelector('#sentence').textContent.startsWith('plateau 1 of 5')")
    assert page.inner_text("#algorithm") == "predicts nothing"
    drop = theory_view(state).drops[0]
    assert page.inner_text("#sentence").endswith(f"(predicted {drop:.4g})")
    lines = page.evaluate("[...document.querySelectorAll('.cursor-line')].map(line => Number(line.dataset.time))")
    first = float(page.inner_text("#shown-cursor").removeprefix("t/τ = "))
    assert len(lines) == 3  # in every picture that has a time axis
    np.testing.assert_allclose(lines, first, rtol=0.01)
    small = np.abs(np.array(page.evaluate(TRACES.format("map-first") + "[0].z"))).max()
    move(page, "cursor", 1000)
    until(page, "document.querySelector('#sentence').textContent.startsWith('the end')")
    keys = np.array(page.evaluate(TRACES.format("map-first") + "[0].z"))
    assert small < 0.01 < 1 < np.abs(keys).max()
    assert keys.shape == (5, 4)
    page.click("#play")
    until(page, "document.querySelector('#cursor').value < 1000")
    assert page.inner_text("#play") == "Pause"
    page.click("#play")
    assert int(page.input_value("#cursor")) < 1000
    move(page, "cursor", 1000)


@pytest.mark.parametrize("name", [n for n in PRESETS if n.startswith(("Fig. 1", "Noisy", "Unequal"))])
def test_presets_show_what_training_and_theory_give(page, address, name):
    state = PRESETS[name]
    open_state(page, address, state.with_(seeds=1))
    view = theory_view(state)
    expected = icl.predict(state.experiment().task, state.experiment().model, init=state.init)
    np.testing.assert_allclose(view.drops, expected.drop_times)
    last = seeds_on(page)[0]["y"][-1]
    lowest = float(view.levels[-1])
    assert last == pytest.approx(lowest, abs=2e-4 * float(view.levels[0]))


def test_impossible_and_long_settings_are_explained_beside_the_control(page, address):
    state = State(seeds=1, log_init=-1.5, heads=2)
    open_state(page, address, state)
    assert page.inner_text("#note-heads") == "room for 2 of 4 components"
    move(page, "rank", 8)
    until(page, "document.querySelector('#note-rank').textContent === 'at most D: 4 is used'")
    load(page, address + LONG)
    until(page, "document.querySelector('#note-log_samples')?.textContent.includes('would take')")
    load(page, address + "?dim=99&heads=banana&model=<script>alert(1)</script>&seeds=1&optimizer=adam")
    until(page, "document.querySelector('#command')?.textContent.includes('--dim 16')")


def test_what_is_copied_and_downloaded_is_what_is_shown(page, address):
    state = State(seeds=1, log_init=-1.5, dim=2)
    open_state(page, address, state)
    assert page.inner_text("#command") == state.command()
    assert page.inner_text("#python") == state.python()
    page.click("#copy-command")
    until(page, "document.querySelector('#copied').textContent.startsWith('copied: iclflow train')")
    with page.expect_download() as waiting:
        page.click("#save-csv")
    rows = waiting.value.path().read_text().splitlines()
    assert rows[0] == "curve,time,loss"
    last = [row for row in rows if row.startswith("seed 0")][-1].split(",")
    assert float(last[2]) == pytest.approx(seeds_on(page)[0]["y"][-1])
    for kind in ("png", "svg"):
        with page.expect_download() as waiting:
            page.click(f"#save-{kind}")
        assert waiting.value.suggested_filename == f"iclflow.{kind}"
        assert waiting.value.path().stat().st_size > 2000


def choose_saved(page, name: str) -> None:
    page.click("#saved")
    page.get_by_text(name, exact=True).click()
    until(page, f"document.querySelector('#progress').textContent.startsWith('{name}: ok, read only')")
    answered(page)


def test_a_saved_run_is_shown_read_only_and_left_again(page, address, saved):
    live = State(seeds=1, log_init=-1.5, dim=3)
    open_state(page, address, live)
    choose_saved(page, "mine")
    run = icl.load(saved / "mine")
    assert seeds_on(page)[0]["y"][-1] == pytest.approx(float(run.loss[-1]), rel=1e-5)
    assert (
        len(page.evaluate(TRACES.format("gains"))) == 2 + 1
    )  # two components and their number: nothing of the live run
    assert page.inner_text("#sentence") == "the end: two of two components learned"
    assert np.array(page.evaluate(TRACES.format("map-first") + "[0].z")).shape == (2, 2)
    assert page.inner_text("#command") == ""
    assert "icl.load" in page.inner_text("#python")
    with page.expect_download() as waiting:
        page.click("#save-csv")
    last = [row for row in waiting.value.path().read_text().splitlines() if row.startswith("seed 3")][-1]
    assert float(last.split(",")[2]) == pytest.approx(float(run.loss[-1]), rel=1e-5)
    move(page, "heads", 6)
    expect_theory(page, live.with_(heads=6))
    settled(page)
    assert len(page.evaluate(TRACES.format("gains"))) == 3 + 1
    choose_saved(page, "mine")  # the same one again


def test_the_last_picture_stays_faded_until_the_new_one_comes(page, address):
    open_state(page, address, State(seeds=2, log_init=-1.5, dim=3))
    traces = "[...document.querySelectorAll('#loss .trace')].map(trace => getComputedStyle(trace).opacity)"
    until(page, traces + ".length === 3")  # two seeds, and the forecast, which may come after them
    assert page.evaluate(traces) == ["1", "1", "1"]
    grid = "getComputedStyle(document.querySelector('.grid')).opacity"
    until(page, f"{grid} === '1'")  # it comes back within a fraction of a second
    page.evaluate("document.querySelector('#pictures').classList.add('faded')")
    until(page, f"({traces}).join() === '0.2,0.2,1' && {grid} === '0.25'")
    load(page, address + LONG)
    until(page, "document.querySelector('#progress')?.textContent === 'theory only'")
    until(page, TRACES.format("gains") + ".length === 0")  # nothing of the former run
    until(page, TRACES.format("loss") + ".length === 1")
    until(page, "document.querySelector('#sentence').textContent.startsWith('theory: ')")


def test_nothing_offers_to_upload(page, address):
    open_state(page, address, State(seeds=1, log_init=-1.5, dim=3))
    for name in ("loss", "gains", "values", "map-first"):
        page.hover(f"#{name}")
    titles = page.evaluate(
        "[...document.querySelectorAll('.modebar-btn')].map(b => b.getAttribute('data-title') || '')"
    )
    assert len(titles) > 5
    assert not [title for title in titles if re.search("share|cloud|upload|studio", title, re.IGNORECASE)]


def choose_preset(page, name: str) -> None:
    page.click("#preset")
    page.get_by_text(name, exact=True).last.click()


def test_a_preset_stays_in_the_menu_and_replaces_every_picture(page, address):
    open_state(page, address, State(seeds=1, log_init=-1.5, dim=3))
    name = "Short context"
    choose_preset(page, name)
    until(page, f"document.querySelector('#command').textContent === {PRESETS[name].command()!r}")
    faded = "document.querySelector('#pictures').classList.contains('faded')"
    components = TRACES.format("gains") + ".length === 5"  # four of them and their number; three before
    until(page, f"{faded} || ({components})")
    settled(page)
    assert page.evaluate(components)
    assert not page.evaluate(faded)
    assert name in page.inner_text("#preset")
    move(page, "noise", 0.5)
    expect_theory(page, PRESETS[name].with_(noise=0.5))
    until(page, "!document.querySelector('#preset').textContent.includes('Short context')")


def test_every_picture_has_a_legend_with_its_own_colours(page, address):
    from iclflow.explorer.pictures import COMPONENTS, CURSOR, HEADS, SEEDS

    assert len({CURSOR, *SEEDS, *COMPONENTS, *HEADS}) == 1 + len(SEEDS) + len(COMPONENTS) + len(HEADS)
    open_state(page, address, State(seeds=3, log_init=-1.5, dim=3))
    words = lambda name: page.evaluate(
        f"[...document.querySelectorAll('#{name} .legendtext')].map(text => text.textContent)"
    )
    until(page, TRACES.format("loss") + ".some(trace => trace.name === 'theory')")  # it may come after the simulation
    loss = {"theory", "seed 0", "seeds 1 to 2", "drops, 95 % interval (theory)", "plateaus (theory)", "cursor"}
    assert set(words("loss")) == loss
    assert set(words("gains")) == {"component 1", "component 2", "component 3", "number learned", "cursor"}
    assert set(words("values")) == {*(f"head {h}" for h in range(1, 6)), "theory", "cursor"}
    dashes = page.evaluate(TRACES.format("loss") + "[0].line.dash")
    assert dashes == "dash"
    bands = page.evaluate(
        "document.querySelector('#loss .js-plotly-plot').layout.shapes.filter(s => s.type === 'rect')"
    )
    expected = theory_view(State(seeds=3, log_init=-1.5, dim=3)).intervals
    np.testing.assert_allclose([[band["x0"], band["x1"]] for band in bands], expected)
    assert page.locator("#map-first .colorbar").count() == 1


def test_maps_are_dark_in_the_dark(page, address):
    page.emulate_media(color_scheme="light")
    open_state(page, address, State(seeds=1, log_init=-1.5, dim=3))
    middle = TRACES.format("map-first") + "[0].colorscale[1][1]"
    assert page.evaluate(middle) == "#f4f4f4"
    page.click("#scheme")
    until(page, middle + " === '#26262d'")
    page.click("#scheme")
    until(page, middle + " === '#f4f4f4'")


@pytest.mark.parametrize("width", [1400, 900, 390])
def test_nothing_jumps_while_the_film_plays(page, address, width):
    page.set_viewport_size({"width": width, "height": 850})
    open_state(page, address, State(seeds=1, log_init=-1.95), afresh=True)
    places = set()
    for cursor in range(0, 1001, 50):
        move(page, "cursor", cursor)
        page.wait_for_timeout(40)
        places.add(page.evaluate("document.querySelector('#loss-box').getBoundingClientRect().top + window.scrollY"))
        cut = page.evaluate("(s => s.scrollHeight - s.clientHeight)(document.querySelector('#sentence'))")
        assert cut <= 2, page.inner_text("#sentence")
    page.set_viewport_size({"width": 1300, "height": 900})
    assert len(places) == 1


def test_on_a_phone_the_picture_comes_first_then_the_controls(page, address):
    page.set_viewport_size({"width": 390, "height": 844})
    open_state(page, address, State(seeds=1, log_init=-1.5, dim=3), afresh=True)
    top = "document.querySelector('{}').getBoundingClientRect().top + scrollY"
    tops = [page.evaluate(top.format(part)) for part in ("#loss-box", ".cursor", "aside", ".grid")]
    bottom = page.evaluate("document.querySelector('#loss').getBoundingClientRect().bottom + scrollY")
    page.set_viewport_size({"width": 1300, "height": 900})
    assert tops == sorted(tops)
    assert bottom < 844  # the whole picture is on the first screen


def test_on_a_phone_no_legend_covers_an_axis(page, address):
    page.set_viewport_size({"width": 390, "height": 844})
    open_state(page, address, State(seeds=3), afresh=True)
    gaps = page.evaluate(
        "['loss', 'gains', 'values'].map(id => {"
        " const box = (what) => document.querySelector(`#${id} ${what}`).getBoundingClientRect();"
        " return [box('.legend').top - box('.xtitle').bottom, box('.xtitle').top - box('.xtick').top]; })"
    )
    page.set_viewport_size({"width": 1300, "height": 900})
    assert min(map(min, gaps)) >= 0, gaps  # from top to bottom: numbers, title, legend


def test_optimiser_decay_and_layers_move_theory_and_simulation(page, address):
    state = State(seeds=1, log_init=-1.5, dim=3, heads=4)
    slow = state.with_(log_lr=-2.5)
    open_state(page, address, slow)
    pick(page, "optimizer", "momentum")
    expect_theory(page, slow.with_(optimizer="momentum"))
    assert page.inner_text("#note-rule") == "momentum takes steps: descent"
    open_state(page, address, state.with_(log_lr=0.0))
    pick(page, "optimizer", "momentum")  # which diverges with this learning rate
    until(page, "document.querySelector('#forecast').textContent.includes('take a smaller lr')")
    pick(page, "optimizer", "plain")
    move(page, "log_lr", -1)
    state = state.with_(optimizer="sgd", rule="flow")  # as the control of the rule still says
    expect_theory(page, state)
    move(page, "log_decay", -2)
    state = state.with_(log_decay=-2)
    expect_theory(page, state)
    settled(page)
    with_decay = icl.train(icl.Task(dim=3), icl.Separate(heads=4), init=0.032, weight_decay=0.01, time=1e4)
    assert seeds_on(page)[0]["y"][-1] == pytest.approx(float(with_decay.loss[-1]), rel=1e-3)
    move(page, "log_decay", -5)
    move(page, "log_length", 2)
    move(page, "layers", 2)
    state = state.with_(log_decay=-5, layers=2, log_length=2)
    until(page, f"document.querySelector('#command').textContent === {state.command()!r}")
    settled(page)
    assert "off" in page.get_attribute("#box-data", "class")
    deep = icl.train(
        icl.Task(dim=3), icl.Separate(heads=4, layers=2), init=0.032, freeze_vectors=True, gram_samples=256, lr=0.1,
        steps=100,
    )  # fmt: skip
    assert seeds_on(page)[0]["y"][-1] == pytest.approx(float(deep.loss[-1]), rel=1e-6)
    move(page, "dim", 5)
    until(page, "document.querySelector('#note-layers').textContent.startsWith('several layers only up to D = 3')")
    assert "off" in page.get_attribute("#box-layers", "class")


def test_a_diverged_run_says_so_in_words(page, address):
    open_state(page, address, State(seeds=1, rule="descent", log_lr=1.0, log_init=0.3))
    assert page.inner_text("#sentence").startswith("training has diverged: ")
    assert page.inner_text("#algorithm") == "none, because training has diverged"


def test_axes_change_without_cutting_a_curve(page, address):
    open_state(page, address, State(seeds=1, log_init=-1.5, dim=3))
    end = max(seeds_on(page)[0]["x"][-1], theory_on(page)[0][-1])
    axis = "document.querySelector('#loss .js-plotly-plot').layout.{}"
    page.locator("#axes label", has_text="log time").click()
    until(page, axis.format("xaxis.type") + " === 'linear'")
    assert page.evaluate(axis.format("xaxis.range")) == pytest.approx([0, end])
    page.locator("#axes label", has_text="log loss").click()
    until(page, axis.format("yaxis.type") + " === 'log'")
    low, high = 10 ** np.array(page.evaluate(axis.format("yaxis.range")))
    levels = icl.theory.plateau_losses(icl.Task(dim=3))
    assert low < levels[-1] < levels[0] < high
    for words in ("log time", "log loss"):
        page.locator("#axes label", has_text=words).click()
    until(page, axis.format("xaxis.type") + " === 'log'")


@pytest.mark.parametrize(("width", "scheme"), [(1300, "light"), (1300, "dark"), (700, "light"), (420, "dark")])
def test_it_fits_wide_and_narrow_light_and_dark(page, address, width, scheme):
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    open_state(page, address, State(seeds=1, log_init=-1.5, dim=3, model="merged", heads=7), afresh=True)
    sliders = "[...document.querySelectorAll('.control:not(.hidden) input[type=range]')]"
    narrowest = page.evaluate(f"Math.min(...{sliders}.map(slider => slider.getBoundingClientRect().width))")
    inside = page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth + 1")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.set_viewport_size({"width": 1300, "height": 900})
    assert inside
    assert narrowest > 100
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")


def test_it_listens_on_loopback_only(address):
    port = int(address.rsplit(":", 1)[1].strip("/"))
    table = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = [row[1] for row in table if row[3] == "0A"]
    ours = [entry for entry in listening if int(entry.split(":")[1], 16) == port]
    assert ours == [f"0100007F:{port:04X}"]
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    begun = time.monotonic()
    line.request("GET", "/", headers={"Host": "evil.example"})
    assert line.getresponse().status == 403
    assert time.monotonic() - begun < 5
