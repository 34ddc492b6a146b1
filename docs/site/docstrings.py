"""From a docstring, Markdown with Google's sections, to the Markdown of the site."""

import re

SECTIONS = {"Args": "param", "Returns": "returns", "Raises": "raises", "Yields": "yields"}


def to_markdown(docstring: str) -> str:
    """The text, examples as code, and then arguments, result and errors as one list of fields."""
    body: list[str] = []
    fields: list[str] = []
    lines = docstring.splitlines()
    while lines:
        line = lines.pop(0)
        name = line.rstrip(":")
        if line == f"{name}:" and name in SECTIONS:
            fields += as_fields(SECTIONS[name], taken(lines, indented))
        elif line.startswith(">>> "):
            body += ["```pycon", line, *taken(lines, lambda more: more.strip() != ""), "```"]
        else:
            body.append(line)
    return "\n".join([*body, "", *fields]).strip()


def taken(lines: list[str], belongs) -> list[str]:
    """The lines from the top that belong together, removed from the rest."""
    found = []
    while lines and belongs(lines[0]):
        found.append(lines.pop(0))
    return found


def indented(line: str) -> bool:
    return line.startswith("    ")


def as_fields(kind: str, lines: list[str]) -> list[str]:
    """A section as fields of a list; a line that is indented further continues the one above it."""
    texts = [line[4:] for line in lines]
    if kind in ("returns", "yields"):
        return [f":{kind}: " + " ".join(text.strip() for text in texts)]
    entries: list[str] = []
    for text in texts:
        if text.startswith(" ") and entries:
            entries[-1] += " " + text.strip()
        else:
            entries.append(text)
    found = [re.match(r"(\*{0,2}\w+)(?: \([^)]*\))?: (.*)", entry) for entry in entries]
    if None in found:
        raise ValueError(f"docstring: cannot read {entries[found.index(None)]!r} as `name: meaning`")
    return [f":{kind} {entry[1]}: {entry[2]}" for entry in found if entry]
