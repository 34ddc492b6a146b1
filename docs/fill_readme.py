"""Write the measured numbers into the README, `docs/claims.md` and `docs/speed.md`.

iclflow verify --json docs/claims.json
python -m benchmarks --json docs/speed.json
python docs/fill_readme.py
"""

import ast
import json
from pathlib import Path

DOCS = Path(__file__).parent
README = DOCS.parent / "README.md"
BENCHMARKS = DOCS.parent / "benchmarks"
PARTS = {  # of the benchmark, and the modules that say how its numbers are made
    "a": ("published_runs", "all_positions"),
    "b": (),
    "c": ("scaling",),
    "c2": (),
    "d": ("matrix_vector",),
    "e": ("softmax",),
    "f": ("peak_memory",),
    "g": ("population_flow",),
    "h": ("start_up",),
    "i": ("plateaus", "baseline_flow"),
    "j": ("depth",),
    "k": (),
}


def claims() -> list[dict]:
    return json.loads((DOCS / "claims.json").read_text())["claims"]


def claims_line() -> str:
    """One line for the README."""
    held, seconds = sum(c["status"] == "pass" for c in claims()), sum(c["seconds"] for c in claims())
    return (
        f"**Claims**: `iclflow verify` measures {len(claims())} of them, the paper's and ours, against their bounds in"
        f" {seconds:.0f} s; {held} hold, and [each holds for any seeds in the setting that it names](docs/claims.md)."
    )


def claims_table() -> str:
    lines = ["| claim | source | measured | bound |", "| --- | --- | --- | --- |"]
    for c in claims():
        mark = "" if c["status"] == "pass" else " **fails**"
        statement = c["statement"].replace("|", r"\|")
        measured = f"{number(c['measured'])}{mark}"
        lines.append(f"| {statement} (`{c['id']}`) | {c['source']} | {measured} | {number(c['bound'])} |")
    return "\n".join(lines)


def speed_lines() -> str:
    """Two lines for the README."""
    rows = {row["what"]: row["measured"] for part in speed_report()["parts"].values() for row in part["rows"]}
    own = "iclflow, {} steps, sampling and compilation included"
    return (
        f"**Speed**: the published run of figure 1 takes {rows[f'figure 1: {own.format(6001)}']}, that of figure 4"
        f" (rank 1) {rows[f'figure 4, rank 1: {own.format(20001)}']}: {rows['figure 1: against the baseline']} and"
        f" {rows['figure 4, rank 1: against the baseline']} faster than attention over all positions of the whole"
        " batch, jitted; against the same code in blocks that fit the cache"
        f" {rows['figure 1: against the optimised baseline (blocks in cache)']} and"
        f" {rows['figure 4, rank 1: against the optimised baseline (blocks in cache)']}.\n"
        "`make bench` measures it; [all numbers, and how each baseline is made](docs/speed.md)."
    )


def speed_page() -> str:
    """All of `docs/speed.md`."""
    report = speed_report()
    about = ", ".join(f"{name} {value}" for name, value in report["machine"].items())
    lines = [
        "# Speed, measured",
        "",
        "`make bench` measures what is on this page, all in one run; `python docs/fill_readme.py` writes the page from"
        " `docs/speed.json`. Every ratio is of two times of this run. Where a target is missed the rows beside it say"
        " against what it is met.",
        "",
        f"The machine: {about}.",
    ]
    for name, modules in PARTS.items():
        if name not in report["parts"]:
            continue
        part = report["parts"][name]
        lines += ["", f"## {part['title']}", ""]
        lines += [f"{docstring(module)}\n" for module in modules]
        lines += ["| what | measured | target |", "| --- | --- | --- |"]
        for row in part["rows"]:
            verdict = {True: ", met", False: ", **not met**", None: ""}[row["met"]]
            lines.append(f"| {row['what']} | {row['measured']} | {row['target'].replace('<- ', '')}{verdict} |")
    return "\n".join(lines) + "\n"


def speed_report() -> dict:
    return json.loads((DOCS / "speed.json").read_text())


def docstring(module: str) -> str:
    """What a module of the benchmark says about itself, without the letter of its part."""
    text = ast.get_docstring(ast.parse((BENCHMARKS / f"{module}.py").read_text())) or ""
    return text.partition(") ")[2] if text.startswith("(") else text


def number(value: float) -> str:
    return "0" if value == 0 else f"{value:.2g}" if 1e-3 <= abs(value) < 1e4 else f"{value:.1e}"


def filled(text: str, name: str, table: str) -> str:
    start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    head, _, rest = text.partition(start)
    _, _, tail = rest.partition(end)
    return f"{head}{start}\n{table}\n{end}{tail}"


def pages() -> dict[Path, str]:
    """The pages that hold measured numbers, as they should be."""
    readme = filled(filled(README.read_text(), "claims", claims_line()), "speed", speed_lines())
    claims_page = filled((DOCS / "claims.md").read_text(), "claims", claims_table())
    return {README: readme, DOCS / "claims.md": claims_page, DOCS / "speed.md": speed_page()}


def main() -> None:
    for path, text in pages().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
