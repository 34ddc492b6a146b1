"""What every figure must look like; `complaints` lists what is wrong with one.

Dashed means theory, and a legend says so. Panels have letters, axes have names and at least two numbers. Nothing is
printed over anything else, and no letter is too small to read in a column.
"""

import itertools
from collections.abc import Iterator

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from iclflow.figures.style import WIDTH

SMALLEST = 7.0  # points, on a page of two columns


def complaints(figure: Figure) -> list[str]:
    """Everything that is wrong with a figure."""
    figure.set_canvas(FigureCanvasAgg(figure))
    figure.draw_without_rendering()
    panels = [ax for ax in figure.axes if ax.get_label() != "<colorbar>"]
    found = [*letters_missing(panels), *theory_unnamed(figure, panels)]
    for ax in figure.axes:
        name = ax.get_title(loc="left") or ax.get_title() or "the only panel"
        every = [
            *axis_complaints(ax.xaxis, "x"),
            *axis_complaints(ax.yaxis, "y"),
            *legend_on_curves(ax),
            *title_on_letter(ax),
        ]
        found += [f"{name}: {complaint}" for complaint in every]
    small = {text.get_text() for text in figure.findobj(Text) if shown(text) and text.get_fontsize() < SMALLEST}
    found += [f"{text!r} is smaller than {SMALLEST} pt" for text in sorted(small)]
    if figure.get_figwidth() > WIDTH:
        found.append("wider than two columns")
    return found


def shown(text: Text) -> bool:
    return text.get_visible() and bool(text.get_text().strip())


def letters_missing(panels: list[Axes]) -> Iterator[str]:
    """Panels in one grid of images share the letters of its first row."""
    given = [ax.get_title(loc="left") for ax in panels if ax.get_title(loc="left")]
    named = [ax for ax in panels if not ax.images or ax.get_title()]
    if len(panels) > 1 and given != list("abcdefghijklmnopqrstuvwxyz"[: len(named)]):
        yield f"panel letters are {given}"


def dashed(ax: Axes) -> bool:
    """Whether a panel shows a dashed line."""
    return any(line.get_linestyle() == "--" and line.get_visible() and len(line.get_xdata()) for line in ax.lines)


def theory_unnamed(figure: Figure, panels: list[Axes]) -> Iterator[str]:
    """Dashes are explained in the figure, and in every legend of a panel that has them."""
    says = lambda legend: any("theory" in text.get_text() for text in legend.get_texts())
    legends = [*figure.legends, *(ax.get_legend() for ax in panels if ax.get_legend())]
    if any(dashed(ax) for ax in panels) and not any(says(legend) for legend in legends):
        yield "no legend says what dashed lines are"
    for ax in panels:
        if dashed(ax) and ax.get_legend() and not says(ax.get_legend()):
            yield f"{ax.get_title(loc='left')}: theory is not in its legend"


def labelled(axis: Axis) -> list[Text]:
    """The labels of the ticks inside the limits of an axis."""
    low, high = sorted(axis.get_view_interval())
    slack = 1e-9 * (high - low)
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    texts = [(tick.get_loc(), text) for tick in ticks for text in (tick.label1, tick.label2)]
    return [text for place, text in texts if low - slack <= place <= high + slack and shown(text)]


def axis_complaints(axis: Axis, name: str) -> Iterator[str]:
    """Two numbers, a name, and no number over another; panels that share an axis share its numbers and its name."""
    group = getattr(axis.axes, f"get_shared_{name}_axes")().get_siblings(axis.axes)
    siblings = [getattr(ax, f"{name}axis") for ax in group]
    if len(axis.get_ticklocs()) == 0:
        return
    if not axis.axes.images and max(len(labelled(one)) for one in siblings) < 2:
        yield f"{name} axis has fewer than two numbers"
    bar = axis.axes.get_label() == "<colorbar>"
    if labelled(axis) and not bar and not any(one.get_label_text() for one in siblings):
        yield f"{name} axis has no name"
    boxes = [text.get_window_extent() for text in labelled(axis)]
    if any(overlap(*pair) for pair in itertools.combinations(boxes, 2)):
        yield f"numbers of the {name} axis overlap"


def overlap(one: Bbox, other: Bbox) -> bool:
    """Whether two boxes share more than their edges."""
    common = Bbox.intersection(one, other)
    return common is not None and common.width > 1 and common.height > 1


def legend_on_curves(ax: Axes) -> Iterator[str]:
    """Curves that run below the legend; lines across the whole panel may."""
    if ax.get_legend() is None:
        return
    box = ax.get_legend().get_window_extent()
    for line in ax.lines:
        across = len(line.get_xdata()) == 2
        path = line.get_path().transformed(line.get_transform())
        if not across and len(path.vertices) > 2 and path.intersects_bbox(box, filled=False):
            yield "the legend lies on a curve"
            return


def title_on_letter(ax: Axes) -> Iterator[str]:
    """A title that runs into the letter of its panel."""
    letter, title = ax._left_title, ax.title
    if shown(letter) and shown(title) and overlap(letter.get_window_extent(), title.get_window_extent()):
        yield "the title runs into the letter"
