"""The built site works from disk: nothing is loaded from the network, and every link inside it leads somewhere."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {  # what a browser loads by itself, by tag
    "script": ("src",), "link": ("href",), "img": ("src", "srcset"), "source": ("src", "srcset"), "iframe": ("src",),
    "video": ("src", "poster"), "audio": ("src",), "embed": ("src",), "object": ("data",), "image": ("href",),
    "use": ("href",),
}  # fmt: skip
REMOTE = re.compile(r"^\s*(https?:)?//", re.IGNORECASE)
IN_STYLE = re.compile(r"""(?:url\(\s*['"]?|@import\s+['"])\s*(?:https?:)?//[^)'"\s]*""", re.IGNORECASE)


class Page(HTMLParser):
    """What a page loads, what it links to, and which places in it can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.leads: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name.removeprefix("xlink:"): value or "" for name, value in attrs}
        self.loads += [given[name] for name in LOADED.get(tag, ()) if name in given]
        if tag == "a" and "href" in given:
            self.leads.append(given["href"])
        self.places |= {given[name] for name in ("id", "name") if name in given}


def complaints(site: Path) -> list[str]:
    """Everything that is wrong with a built site, a line each."""
    pages = {path.resolve(): Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        remote = [link for link in page.loads if REMOTE.match(link)] + IN_STYLE.findall(path.read_text())
        found += [f"{name}: loads {link} from the network" for link in remote]
        local = [link for link in page.loads if not REMOTE.match(link) and not link.startswith("data:")]
        found += [f"{name}: {link} leads nowhere" for link in [*local, *page.leads] if not reached(path, link, pages)]
    for style in sorted(site.rglob("*.css")):
        found += [f"{style.relative_to(site)}: loads {link}" for link in IN_STYLE.findall(style.read_text())]
    return found


def reached(page: Path, link: str, pages: dict[Path, Page]) -> bool:
    """Whether a link inside the site leads to a file that is there, and to a place in it."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not parts.fragment or target not in pages:
        return target.is_file()
    return unquote(parts.fragment) in pages[target].places
