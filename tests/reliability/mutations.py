"""Ways in which a file can be wrong: single bits, pieces, numbers in text, parts of archives, no file at all."""

import io
import json
import os
import random
import re
import shutil
import socket
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

__all__ = ["KINDS", "OTHERS", "mutate", "replaced"]

WORDS = (
    "1e400", "-1e308", "1e-320", "-0.0", "nan", "inf", "-1", "0", "1_0", "0x1f", "1e5", "2.5", "true", "null", '""',
    "'x'", "[]", "{}", "[[1]]", "[1, 2", '{"a": 1}', "9" * 25, "9" * 5000, "[" * 3000, "1970-01-01", "#", "\n", "\r",
    "\x00", ",", "\u0661", "\u2028", "'''", "${HOME}", "/dev/zero", "..", "fifo",
)  # fmt: skip
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
Bytes = Callable[[bytes, random.Random], bytes]


def one_bit(content: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(content))
    return content[:at] + bytes([content[at] ^ (1 << dice.randrange(8))]) + content[at + 1 :]


def some_bytes(content: bytes, dice: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(dice.randint(2, 40)):
        changed[dice.randrange(len(changed))] = dice.randrange(256)
    return bytes(changed)


def cut_short(content: bytes, dice: random.Random) -> bytes:
    return content[: dice.randrange(len(content))]


def longer(content: bytes, dice: random.Random) -> bytes:
    return content + dice.choice([b"\0", b"\n", dice.randbytes(dice.randint(1, 300)), content])


def piece_gone(content: bytes, dice: random.Random) -> bytes:
    begin, end = sorted(dice.choices(range(len(content) + 1), k=2))
    return content[:begin] + content[end:]


def piece_twice(content: bytes, dice: random.Random) -> bytes:
    begin, end = sorted(dice.choices(range(len(content) + 1), k=2))
    return content[:end] + content[begin:]


def piece_blank(content: bytes, dice: random.Random) -> bytes:
    begin, end = sorted(dice.choices(range(len(content) + 1), k=2))
    return content[:begin] + dice.choice([b"\0", b"\xff", b" ", b"9"]) * (end - begin) + content[end:]


def other_number(content: bytes, dice: random.Random) -> bytes:
    """A number of the text, or eight bytes where there is none, by something that is no such number."""
    found = list(NUMBER.finditer(content))
    if not found:
        return huge_size(content, dice)
    chosen = dice.choice(found)
    return content[: chosen.start()] + dice.choice(WORDS).encode() + content[chosen.end() :]


def huge_size(content: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(max(len(content) - 8, 1))
    return content[:at] + struct.pack("<Q", dice.choice([2**63 - 1, 2**40, 2**31, 0])) + content[at + 8 :]


def word_inside(content: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(content))
    return content[:at] + dice.choice(WORDS).encode() + content[at:]


def lines_changed(content: bytes, dice: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    dice.shuffle(lines)
    return b"".join(lines)


def inside_archive(content: bytes, dice: random.Random) -> bytes:
    """One member of a zip archive mutated, and packed again, so that its checksum is right."""
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive, zipfile.ZipFile(packed, "w") as again:
        names = archive.namelist()
        chosen = dice.choice(names)
        for name in names:
            member = archive.read(name)
            again.writestr(name, dice.choice(PLAIN)(member, dice) if name == chosen else member)
    return packed.getvalue()


def inside_header(content: bytes, dice: random.Random) -> bytes:
    """The header of a safetensors file, or of an array, mutated, with the length that it then has."""
    if content[:6] == b"\x93NUMPY":
        length = struct.unpack("<H", content[8:10])[0]
        header = dice.choice(PLAIN)(content[10 : 10 + length], dice)[:65535]
        return content[:8] + struct.pack("<H", len(header)) + header + content[10 + length :]
    length = struct.unpack("<Q", content[:8])[0]
    header = dice.choice(PLAIN)(content[8 : 8 + length], dice)
    return struct.pack("<Q", len(header)) + header + content[8 + length :]


def other_value(content: bytes, dice: random.Random) -> bytes:
    """One value of a JSON file, at any depth, by one of another type."""
    whole = json.loads(content)
    places: list[tuple[dict | list, str | int]] = []

    def look(inside: object) -> None:
        keys = inside if isinstance(inside, dict) else range(len(inside)) if isinstance(inside, list) else ()
        for key in keys:
            places.append((inside, key))
            look(inside[key])

    look(whole)
    where, key = dice.choice(places)
    where[key] = dice.choice([None, True, -1, 0, 3, 2.5, 1e300, 10**30, "", "x", "1", [], [1], [[]], {}, {"a": 1}])
    return json.dumps(whole, indent=1).encode()


PLAIN: tuple[Bytes, ...] = (
    one_bit, some_bytes, cut_short, longer, piece_gone, piece_twice, piece_blank, other_number, word_inside, huge_size,
)  # fmt: skip
KINDS: dict[str, tuple[Bytes, ...]] = {  # by the end of a file's name
    ".npz": (*PLAIN, inside_archive, inside_archive, inside_archive),
    ".npy": (*PLAIN, inside_header, inside_header),
    ".safetensors": (*PLAIN, inside_header, inside_header),
    ".json": (*PLAIN, other_value, other_value),
    ".toml": (*PLAIN, other_number, other_number, lines_changed),
    ".csv": (*PLAIN, other_number, other_number, lines_changed),
    ".txt": (*PLAIN, other_number, other_number, lines_changed),
}

OTHERS = ("nothing", "folder", "pipe", "device", "socket", "loop", "dangling", "empty", "itself below")


def mutate(file: Path, dice: random.Random) -> str:
    """Make a file wrong in one way, which is returned."""
    if dice.random() < 0.08:
        return replaced(file, dice.choice(OTHERS))
    content = file.read_bytes()
    how = dice.choice(KINDS.get(file.suffix, PLAIN))
    file.write_bytes(how(content, dice) if content else b"x")
    return how.__name__


def replaced(file: Path, kind: str) -> str:
    """Something else in the place of the file."""
    aside = file.with_name("aside")
    file.rename(aside)
    if kind == "folder":
        file.mkdir()
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "device":
        file.symlink_to("/dev/zero")
    elif kind == "socket":
        here = os.getcwd()
        os.chdir(file.parent)  # the name of a socket may not be long
        try:
            with socket.socket(socket.AF_UNIX) as one:
                one.bind(file.name)
        finally:
            os.chdir(here)
    elif kind == "loop":
        file.symlink_to(file.name)
    elif kind == "dangling":
        file.symlink_to("nowhere")
    elif kind == "empty":
        file.touch()
    elif kind == "itself below":
        file.mkdir()
        shutil.copy(aside, file / file.name)
    aside.unlink()
    return kind
