"""Build the documentation site: `python docs/site/build.py --out site`, or `make docs`.

Pages, notebooks and docstrings are staged as Markdown in `build/site-pages`, Sphinx makes HTML of them with warnings as
errors, and the result is checked: nothing from the network, no dead link. Pictures of the gallery come from `results`
if the present program made them, otherwise from small runs (`iclflow reproduce --fast`), kept in `build/gallery`.
"""

import argparse
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import api_pages  # noqa: E402
import gallery  # noqa: E402
import offline  # noqa: E402
import pages  # noqa: E402

import commands  # noqa: E402

ROOT = pages.ROOT


def stage(target: Path, folders: list[Path]) -> None:
    """Write everything that Sphinx reads."""
    shutil.rmtree(target, ignore_errors=True)
    links = api_pages.links()
    pages.stage(target, links)
    api_pages.write_pages(target, links)
    commands.write_commands(target)
    gallery.write_gallery(target, links, folders)


def draw_missing(folders: list[Path], small: Path) -> None:
    """Draw small versions of the figures that have no picture."""
    from iclflow.studies.runner import reproduce

    names = [name for chapter in gallery.figure_names().values() for name in chapter]
    missing = [name for name in names if gallery.picture(name, folders) is None]
    if missing:
        done = reproduce(*missing, out=small, fast=True, claims=False, tell=lambda outcome: print(outcome, flush=True))
        if done.failed:
            raise SystemExit(f"gallery: {done.failed[0].piece[1]} failed: {done.failed[0].error}")


def sphinx(source: Path, out: Path, parsed: Path) -> int:
    from sphinx.cmd.build import main

    return main(["-W", "--keep-going", "-q", "-E", "-c", str(HERE), "-d", str(parsed), str(source), str(out)])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Build the documentation site.")
    parser.add_argument("--out", type=Path, default=ROOT / "site", help="where the site is written")
    parser.add_argument("--work", type=Path, default=ROOT / "build", help="where staged pages and small runs are kept")
    parser.add_argument("--no-figures", action="store_true", help="draw nothing: the gallery shows what is there")
    given = parser.parse_args(arguments)
    if given.out.exists() and any(given.out.iterdir()) and not (given.out / ".buildinfo").is_file():
        parser.error(f"--out: {str(given.out)!r} holds something that is not this site; choose another folder")
    source, small = given.work / "site-pages", given.work / "gallery"
    folders = [ROOT / "results", small]
    if not given.no_figures:
        draw_missing(folders, small)
    stage(source, folders)
    made = given.work / "site-made" / "html"  # notebooks leave pictures in the folder above it
    shutil.rmtree(made.parent, ignore_errors=True)
    code = sphinx(source, made, given.work / "site-parsed")
    if code:
        return code
    shutil.rmtree(given.out, ignore_errors=True)
    shutil.move(made, given.out)
    wrong = offline.complaints(given.out)
    for line in wrong:
        print(line, file=sys.stderr)
    if not wrong:
        print(f"{given.out / 'index.html'}: {len(list(given.out.rglob('*.html')))} pages")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
