"""What a notebook shows of results, and what Python answers to a slip of the pen."""

import inspect
import json
import re
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest

import commands
import iclflow as icl
from iclflow.prediction.card import theory_line
from iclflow.results.card import as_json, as_text, relative

TASK, MODEL = icl.Task(dim=3, context=20), icl.Separate(heads=3)


@pytest.fixture(scope="module")
def run():
    return icl.train(TASK, MODEL, init=0.05, time=200.0)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    base = {"model": "merged", "heads": 2, "dim": 2, "context": 10, "init": 0.1, "steps": 50}
    where = tmp_path_factory.mktemp("sweep") / "s"
    return icl.sweep({"base": {**base, "samples": 100}, "axes": {"lr": [0.02, 0.05]}, "seeds": 2}, where, workers=0)


@pytest.fixture(scope="module")
def results(run, sweep):
    return {
        "run": run,
        "comparison": icl.compare(run),
        "overlay": icl.compare([run, run.loss.values], time=run.time.values),
        "prediction": icl.predict(TASK, MODEL),
        "probe": icl.probe(run, shifts=False),
        "sweep": sweep,
    }


class Tags(HTMLParser):
    """Every tag that is opened is closed, in order; tags and attributes are kept."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.values = [], set(), []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.tags.add(tag)
        self.values += [value for name, value in attributes if not name.startswith("xmlns")]

    def handle_startendtag(self, tag, attributes):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


NAMES = ("run", "comparison", "overlay", "prediction", "probe", "sweep")


@pytest.mark.parametrize("name", NAMES)
def test_a_result_is_a_small_curve_and_a_table_without_scripts_or_addresses(name, results):
    page = results[name]._repr_html_()
    tags = Tags(page)
    assert {"svg", "path", "table"} <= tags.tags
    assert not {"script", "link", "img", "iframe", "style"} & tags.tags
    assert not [value for value in tags.values if value and ("//" in value or "javascript" in value)]
    assert len(page) < 60_000
    assert not [path for path in drawn(page) if "nan" in path]


def drawn(page):
    """The curves of a page, without the lines of levels and the frame."""
    return re.findall(r'id="line2d_\d+">\s*<path d="([^"]*)"[^>]*stroke-linecap: (?:square|butt)', page)


@pytest.mark.parametrize("name", NAMES)
def test_html_shows_everything_that_the_text_shows(name, results):
    """Every word and number of the text stands in the HTML."""
    page = unescape(re.sub(r"<[^>]*>", " ", results[name]._repr_html_()))
    text = as_text(results[name].card())
    assert len(text.split()) > 20
    assert not set(text.split()) - set(page.split())


def test_errors_are_never_rounded_to_zero(results):
    for name in ("comparison", "overlay"):
        assert "0.00%" not in repr(results[name])
    assert [relative(x) for x in (None, 0.0, 2.04e-5, 0.0123, 1.5)] == [None, "0", "2.0e-5", "0.012", "1.5"]
    assert re.search(r" \d\.\de-\d ", repr(results["comparison"]))


def test_theory_in_a_small_picture_lies_where_it_belongs(results):
    """A straight line between two points of the drawn curve is nowhere farther from theory than the picture shows."""
    prediction = results["prediction"]
    line = theory_line(prediction, prediction.end)
    x = (line.x[1:] + line.x[:-1]) / 2
    middle = (line.y[1:] + line.y[:-1]) / 2
    assert np.abs(prediction.loss(x) - middle).max() < 0.004 * np.ptp(line.y)  # of 1.4 inches that the picture is high


def test_a_card_as_json_is_what_to_dict_returns(results):
    for name in ("comparison", "overlay", "prediction", "probe"):
        assert json.loads(as_json(results[name].card())) == json.loads(json.dumps(results[name].to_dict()))


@pytest.mark.parametrize("name", NAMES)
def test_a_result_is_readable_in_a_terminal(name, results):
    text = repr(results[name])
    assert "array(" not in text
    assert "<function" not in text
    assert len(text) < 8000


def test_the_curve_in_the_notebook_is_the_curve_of_the_run(run):
    """The first and last points of the drawn line stand at the first and last losses."""
    points = np.array(re.findall(r"[ML] ([\d.]+) ([\d.]+)", drawn(run._repr_html_())[0]), dtype=float)
    heights, losses = points[:, 1], run.loss.values
    bottom = 0.79 * 1.9 * 72  # points of the axis, where the loss is zero
    assert (bottom - heights[-1]) / (bottom - heights[0]) == pytest.approx(losses[-1] / losses[0], abs=0.01)
    assert (np.diff(heights) >= 0).all()  # downwards on the page, as the loss falls


def test_names_are_escaped(run):
    told = icl.probe(lambda s: s[:, -1, :1], TASK, shifts=False)
    assert "<lambda>" not in told._repr_html_()
    assert "&lt;lambda&gt;" in told._repr_html_()


def test_figures_show_themselves(run, results):
    for figure in (icl.figures.loss_curve(run), icl.figures.probe_distances(results["probe"])):
        assert figure._repr_png_().startswith(b"\x89PNG")


def test_arrays_say_what_they_are_and_in_which_units(run, sweep, tmp_path):
    assert run.loss.attrs == {"long_name": "training loss", "units": "mean squared error per label"}
    assert run.time.attrs == {"long_name": "time t/tau", "units": "tau"}
    assert run.curves["step"].attrs["long_name"] == "saved time"
    assert run.weights["key"].attrs["long_name"] == "weights key"
    again = icl.load(run.save(tmp_path / "a"))
    assert again.loss.attrs == run.loss.attrs
    assert again.time.attrs == run.time.attrs
    for name in ("loss", "curve_time", "drop_times", "final_loss", "seconds"):
        assert {"long_name", "units"} <= set(sweep.data[name].attrs), name


def plainly(verb, *arguments, **settings):
    """Call a verb without the run-time check of annotations that tests switch on."""
    return inspect.unwrap(verb)(*arguments, **settings)


SLIPS = [
    (lambda: plainly(icl.train, MODEL, TASK), "task: Separate(..) is a model; the task comes first, then the model"),
    (lambda: plainly(icl.train, TASK, "separate"), "model: 'separate' must be a model; write icl.Separate()"),
    (lambda: plainly(icl.train, TASK, icl.Merged), "model: Merged is a class; write Merged()"),
    (lambda: plainly(icl.train, TASK, np.tanh), "model: 'tanh' must be wrapped into a class Mine(icl.Model)"),
    (lambda: plainly(icl.train, TASK, 5), "model: 5 must be a model, such as icl.Separate(heads=5)"),
    (lambda: plainly(icl.train, 4, MODEL), "task: 4 must be an icl.Task, such as icl.Task(dim=4, context=31)"),
    (lambda: plainly(icl.predict, MODEL, TASK), "task: Separate(..) is a model"),
    (lambda: plainly(icl.compare, np.ones(3), MODEL, TASK), "task: Separate(..) is a model"),
]


@pytest.mark.parametrize(("slip", "line"), SLIPS, ids=range(len(SLIPS)))
def test_a_slip_is_answered_in_one_helpful_line(slip, line):
    with pytest.raises(icl.BadInput, match=re.escape(line)) as caught:
        slip()
    assert "\n" not in str(caught.value)


def test_a_seed_or_an_attribute_that_a_run_does_not_have(run):
    with pytest.raises(icl.BadInput, match="seed: 9 must be one of 0, the seeds of this run"):
        run.select(9)
    with pytest.raises(AttributeError, match="a run has no attribute 'los'; did you mean 'loss'?"):
        run.los  # noqa: B018
    assert not hasattr(run, "__array_interface__")


def test_saving_twice_names_the_argument_in_python_and_the_flag_on_the_command_line(run, tmp_path, capsys):
    run.save(tmp_path / "a")
    with pytest.raises(icl.BadInput, match="exists; choose another directory, or give overwrite=True$"):
        run.save(tmp_path / "a")
    line = ["--model", "merged", "--heads", "2", "--dim", "2", "--time", "1", "--out", str(tmp_path / "a")]
    code, _, err = commands.call(capsys, "train", *line)
    assert code == 2
    assert err.rstrip().endswith("or give --overwrite")


def test_the_line_of_the_flow_counts_steps_of_the_solver_and_its_probe_says_what_was_kept(tmp_path, capsys):
    line = [
        "--model",
        "merged",
        "--heads",
        "2",
        "--dim",
        "2",
        "--time",
        "5",
        "--out",
        str(tmp_path / "a"),
        "--no-figure",
    ]
    code, out, _ = commands.call(capsys, "train", *line)
    assert code == 0
    steps = icl.load(tmp_path / "a").summary["runs"][0]["solver_steps"]
    assert f"{steps} solver steps of the flow" in out
    assert "Only the first and last weights" in str(icl.probe(tmp_path / "a", shifts=False))
