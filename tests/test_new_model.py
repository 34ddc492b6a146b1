"""A model of one's own, by the letter of docs/how-to/new-model.md and outside of the package."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import iclflow as icl

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "how-to" / "new-model.md").read_text()


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", TEXT, re.DOTALL)


CLASS, SESSION, FUNCTION, MODULE, CUBIC = blocks("python")
TRAIN, SWEEP = blocks("console")
GRID = blocks("toml")[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """What a reader has after typing in the page: the class, the session in Python, the commands, the sweep."""
    where = tmp_path_factory.mktemp("reader")
    (where / "mine.py").write_text(CLASS)
    (where / "linear.py").write_text("import iclflow as icl\n\n\n" + CUBIC)
    (where / "tanh.toml").write_text(GRID)
    return where


def typed(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    env = {**os.environ, "JAX_PLATFORMS": "cpu"}
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=env, capture_output=True, text=True)


@pytest.fixture(scope="module")
def session(folder) -> str:
    done = typed(folder, "-c", SESSION)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def mine(folder):
    sys.path.insert(0, str(folder))
    import linear
    import mine

    yield mine.Tanh, linear.Cubic
    sys.path.remove(str(folder))


def test_the_page_trains_saves_resumes_and_probes(session, folder):
    last, minimum = map(float, session.splitlines()[0].split())
    assert 0.8 * minimum < last < 1.2 * minimum  # a sample: a little below the population is possible
    assert "Tanh, sharpness 2.0" in session
    assert json.loads((folder / "runs" / "tanh" / "summary.json").read_text())["config"]["model"] == "mine:Tanh"


def test_the_command_trains_it_and_its_fields_are_flags(folder):
    (line,) = TRAIN.strip().splitlines()
    done = typed(folder, "-m", *shlex.split(line), "--out", "runs/typed", "--json")
    assert done.returncode == 0, done.stderr
    config = json.loads(done.stdout)["config"]
    assert (config["model"], config["sharpness"]) == ("mine:Tanh", 2.0)
    wrong = typed(folder, "-m", *shlex.split(line), "--sharpnes", "2")
    assert wrong.returncode == 2
    assert "did you mean --sharpness?" in wrong.stderr


def test_the_sweep_has_its_fields_as_axes(folder, mine):
    (line,) = SWEEP.strip().splitlines()
    done = typed(folder, "-m", *shlex.split(line))
    assert done.returncode == 0, done.stderr
    sweep = icl.load(folder / "sweeps" / "tanh")
    assert sweep.data["sharpness"].values.tolist() == [0.5, 1.0, 2.0]
    assert sweep.status == {"ok": 6}
    one = icl.train(
        icl.Task(dim=3, context=20), mine[0](sharpness=2.0), init=0.1, samples=500, lr=0.2, steps=100, seed=1
    )
    assert sweep.data["final_loss"].sel(sharpness=2.0, seed=1).item() == pytest.approx(float(one.loss[-1]), rel=1e-12)
    again = typed(folder, "-m", *shlex.split(line), "--resume")
    assert "6 of 6 runs are done" in again.stdout


def test_a_file_opens_without_the_class_and_says_what_to_import(session, folder):
    code = (
        "import iclflow as icl\n"
        "run = icl.load('runs/tanh')\n"
        "print(float(run.loss[0, -1]), run.final_weights['U'].shape)\n"
        "try: icl.probe(run)\n"
        "except icl.BadInput as error: print(error)\n"
        "from mine import Tanh\n"
        "print(icl.load('runs/tanh').model, icl.load('runs/tanh', model=Tanh).model.sharpness)\n"
    )
    done = typed(folder, "-c", code)
    assert done.returncode == 0, done.stderr
    curve, error, known = done.stdout.splitlines()
    assert curve.endswith("(2, 3, 3)")
    assert error == (
        "model: 'mine:Tanh' is not known here; import mine first, or give the class, model=Tanh"
        " (command line: --model mine:Tanh)"
    )
    assert known == "sharpness=2.0 2.0"


def test_what_the_model_does_not_offer_is_refused_by_its_name(mine):
    Tanh, _ = mine
    task, settings = icl.Task(dim=3, context=20), {"init": 0.1, "samples": 50}
    for more, line in (
        ({"lr": 0.1, "steps": 5, "engine": "moments"}, "engine: 'moments' must be 'tokens' or 'auto' with Tanh"),
        ({"lr": 0.1, "steps": 5, "init_law": "aligned"}, "init_law: 'aligned' must be one of entry, random for model"),
        ({"lr": 0.1}, "steps: must be given for model 'mine:Tanh'"),
        ({"steps": 5}, "lr: must be given for model 'mine:Tanh'"),
        ({"time": 5.0}, "time: belongs to the flow, which needs moments; Tanh"),
    ):
        with pytest.raises(icl.BadInput, match=line):
            icl.train(task, Tanh(), **settings, **more)
    run = icl.train(task, Tanh(), **settings, lr=0.1, steps=5)
    with pytest.raises(icl.BadInput, match="Tanh, sharpness 1.0 has no theory of its loss curve"):
        icl.predict(task, Tanh())
    assert run.weights["U"].dims == ("record", "U_0", "U_1")


def test_mistakes_in_a_class_are_one_line_each():
    with pytest.raises(icl.BadInput, match="lr: is a setting of its own and cannot be a field of model 'Bad'"):

        class Bad(icl.Model):
            lr: float = 1.0

    class Half(icl.Model):
        def shapes(self, task):
            return {"U": (task.dim,)}

    with pytest.raises(icl.BadInput, match="'Half' has no method predict; a model needs shapes"):
        Half()

    class Wide(Half):
        def predict(self, weights, sequence, task):
            return sequence

    class Broken(Half):
        def predict(self, weights, sequence, task):
            return weights["V"]

    class Complex(Half):
        def predict(self, weights, sequence, task):
            return weights["U"][:1] + 1j

    class Listed(Complex):
        def shapes(self, task):
            return [3]

    class Bare(Complex):
        def shapes(self, task):
            return {"U": 3}

    class Alone(Complex):
        def shapes(self):
            return {"U": (3,)}

    class Scalar(Half):
        def predict(self, weights, sequence, task):
            return weights["U"] @ sequence[-1, : task.dim]

    settings = {"samples": 20, "lr": 0.1, "steps": 2}
    for model, line in (
        (Wide(), r"predicts shape \(11, 4\), must be \(1,\), one per label"),
        (Scalar(), r"predicts shape \(\), must be \(1,\)"),
        (Broken(), "cannot predict a sequence .KeyError: 'V'"),
        (Complex(), "predicts complex128, must be real numbers"),
        (Listed(), r"shapes of '.*Listed' are \[3\], must return shapes by name, such as"),
        (Bare(), r"gives 'U' the shape 3, must return shapes by name"),
        (Alone(), r"cannot say its shapes .TypeError: .*takes 1 positional argument"),
    ):
        with pytest.raises(icl.BadInput, match=line):
            icl.train(icl.Task(dim=3, context=10), model, **settings)


def test_a_model_that_predicts_nan_says_that_the_learning_rate_is_not_the_reason(quiet):
    class Lost(icl.Model):
        def shapes(self, task):
            return {"U": (task.dim,)}

        def predict(self, weights, sequence, task):
            return weights["U"][:1] / 0

    run = icl.train(icl.Task(dim=2, context=5), Lost(), samples=20, lr=0.1, steps=3)
    assert run.status == "diverged"
    assert "is not a finite number before the first step: see model" in run.summary["runs"][0]["why"]
    with pytest.raises(icl.BadInput, match="subject: a run without a finite loss cannot be compared"):
        icl.compare(run)


def test_a_linear_model_of_ones_own_has_moments_tokens_and_flow(mine):
    """One class, three engines: descent on moments and tokens alike, and the flow as its limit."""
    _, Cubic = mine
    task, settings = icl.Task(dim=3, context=10), {"init": 0.5, "samples": 400, "seed": 3}
    run = lambda **more: icl.train(task, Cubic(), **settings, **more)
    moments, tokens = (run(lr=0.05, steps=200, engine=engine) for engine in ("moments", "tokens"))
    assert np.abs(moments.loss.values - tokens.loss.values).max() < 1e-12
    flow = run(time=2 * 0.05 * 200)
    assert abs(flow.loss.values[-1] - moments.loss.values[-1]) < 2e-3
    fine = run(lr=0.05 / 8, steps=1600)
    assert abs(flow.loss.values[-1] - fine.loss.values[-1]) < 3e-4
    whole, first = run(lr=0.05, steps=200), icl.resume(run(lr=0.05, steps=80), steps=120)
    np.testing.assert_array_equal(first.loss.values, whole.loss.values)
    probed = icl.probe(whole, shifts=False)
    assert probed.heads is None
    assert np.isfinite(list(probed.distances.values())).all()


def test_prefixes_are_what_predict_says_of_each_of_them(mine):
    """The loss over all prefixes, against a loop written here."""
    Tanh, _ = mine
    task, model = icl.Task(dim=2, context=4, prefix_loss=True), Tanh(sharpness=0.7)
    run = icl.train(task, model, init=0.5, samples=6, lr=0.1, steps=1)
    slow, weights = [], run.initial_weights
    for sequence in icl.sample(task, 6):
        for n in range(1, 5):
            hidden = sequence[: n + 1].copy()
            hidden[n, 2:] = 0
            slow.append((np.asarray(model.predict(weights, hidden, task)) - sequence[n, 2:]) ** 2)
    assert run.loss.values[0] == pytest.approx(np.mean(slow), rel=1e-12)


def test_functions_and_modules_are_wrapped_in_three_lines():
    import equinox as eqx
    import jax

    names = {"icl": icl, "jax": jax, "my_function": lambda U, s: s[:-1, 3:].T @ s[:-1, :3] @ U @ s[-1, :3] / 10}
    exec(FUNCTION, names)
    settings = {"init": 0.1, "samples": 100, "lr": 0.1, "steps": 20}
    assert icl.train(icl.Task(dim=3, context=10), names["Mine"](), **settings).status == "ok"

    class Net(eqx.Module):
        layer: eqx.nn.Linear

        def __call__(self, sequence):
            return self.layer(sequence[:-1, 3:].T @ sequence[:-1, :3] @ sequence[-1, :3] / 10)

    names["MODULE"] = Net(eqx.nn.Linear(1, 1, key=jax.random.key(0)))
    exec(MODULE, names)
    assert icl.train(icl.Task(dim=3, context=10), names["Mine"](), **settings).status == "ok"


def test_a_class_of_a_script_trains_and_is_saved_but_workers_cannot_import_it(folder):
    script = CLASS + (
        "run = icl.train(icl.Task(dim=2), Tanh(), init=.1, samples=50, lr=.1, steps=5, out='runs/main')\n"
        "print(icl.load('runs/main').model, icl.probe('runs/main', shifts=False).algorithm)\n"
        "base = {'model': '__main__:Tanh', 'dim': 2, 'samples': 50, 'lr': .1, 'steps': 5}\n"
        "print(icl.sweep({'base': base}, 'sweeps/main', workers=0).status)\n"
        "try: icl.sweep({'base': base}, 'sweeps/other', workers=1)\n"
        "except icl.BadInput as error: print(error)\n"
    )
    (folder / "script.py").write_text(script)
    done = typed(folder, "script.py")
    assert done.returncode == 0, done.stderr
    opened, swept, refused = done.stdout.splitlines()
    assert opened == "sharpness=1.0 zero"
    assert swept == "{'ok': 1}"
    assert "put class Tanh into a file of its own, or compute in this process with workers=0" in refused


def test_a_class_made_from_a_built_in_model_keeps_all_that_it_offers(tmp_path):
    """Ten lines that change one thing: moments, theory and the probe come along, and files of the parent still open."""

    class Signed(icl.Separate):
        def predict(self, weights, sequence, task):
            return -super().predict(weights, sequence, task)

        def theta(self, part):
            return -super().theta(part)

        def pull_back(self, part, slope):
            return {name: -array for name, array in super().pull_back(part, slope).items()}

    settings = {"init": 0.3, "samples": 100, "lr": 0.05, "steps": 50}
    task = icl.Task(dim=3, context=10)
    moments, tokens = (icl.train(task, Signed(heads=3), engine=e, **settings) for e in ("moments", "tokens"))
    np.testing.assert_allclose(moments.loss.values, tokens.loss.values, rtol=1e-12)
    flipped = {**moments.initial_weights, "value": -moments.initial_weights["value"]}
    plain = icl.train(
        task, icl.Separate(heads=3), weights=flipped, **{k: v for k, v in settings.items() if k != "init"}
    )
    np.testing.assert_allclose(plain.loss.values, moments.loss.values, rtol=1e-10)
    again = icl.train(task, weights=plain.final_weights, samples=100, lr=0.05, steps=5)
    assert type(again.model) is icl.Separate


def test_the_command_line_probes_compares_and_resumes_it_when_told_its_class(session, folder):
    for arguments, shown in (
        (["probe", "runs/tanh"], "Tanh"),
        (["train", "--resume", "runs/tanh", "--steps", "2"], "runs/tanh"),
        (["compare", "runs/tanh"], "nearest to linear attention"),
    ):
        told = typed(folder, "-m", "iclflow", *arguments, "--model", "mine:Tanh")
        assert told.returncode == 0, told.stderr
        assert shown in told.stdout
    untold = typed(folder, "-m", "iclflow", "probe", "runs/tanh")
    assert (untold.returncode, untold.stderr.count("\n")) == (2, 1)
    assert "--model mine:Tanh" in untold.stderr


def test_a_sweep_in_python_takes_the_model_itself(mine, tmp_path):
    Tanh, _ = mine
    base = {"dim": 2, "context": 5, "samples": 20, "lr": 0.1, "steps": 5}
    both = {"base": {**base, "model": Tanh(sharpness=2.0)}, "axes": {"init": [0.1, 0.2]}}
    swept = icl.sweep(both, tmp_path / "instance", workers=0)
    assert swept.experiment(init=0.1, seed=0).model == Tanh(sharpness=2.0)
    along = {"base": {**base, "model": Tanh, "init": 0.1}, "axes": {"sharpness": [0.5, 2.0]}}
    assert icl.sweep(along, tmp_path / "class", workers=0).status == {"ok": 2}
    with pytest.raises(icl.BadInput, match="base.sharpness: is given twice"):
        icl.sweep({"base": {**base, "model": Tanh(sharpness=2.0), "sharpness": 1.0}}, tmp_path / "x", workers=0)


def test_a_field_without_a_type_and_shapes_without_a_method_are_refused_in_one_line():
    with pytest.raises(icl.BadInput, match="size: a field of model 'Untyped' needs a type; write size: int = 3"):
        type("Untyped", (icl.Model,), {"size": 3, "__module__": __name__})
    with pytest.raises(icl.BadInput, match="shapes: must be a method of class Fixed"):
        type("Fixed", (icl.Model,), {"shapes": {"U": (1,)}, "__module__": __name__})
