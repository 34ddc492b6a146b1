"""How a program ends: one line and an exit code, also if it is interrupted or nobody reads what it prints.

SIGINT and SIGTERM end a program at once: an exception inside an import or a library can be lost, or crash it. Only
while something is written they raise `KeyboardInterrupt`, so that whatever is half written is removed. Should that be
lost (in a destructor), or a library not return, a thread ends the process soon after.
"""

import contextlib
import errno
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

__all__ = ["complain", "ended"]

GRACE = 5.0  # seconds from a signal to the end of a process that has not ended by itself
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
INTERRUPTED, UNREAD, NO_ROOM = 130, 141, 4  # exit codes
WRITERS = ("results/", "system/atomic.py", "paper/", "sweeps/", "explorer/")  # what tidies up after an interrupt
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Heard:
    """Whether a signal has asked the program to end, and its name."""

    asked, name = False, ""


def ended(name: str, work: Callable[[], int], program: bool) -> NoReturn:
    """Exit with the code that `work` returns, after everything printed has reached its reader.

    Args:
        name: begins the line of a complaint.
        work: what the program does.
        program: whether this is all that the process does, so that it may be ended at once.
    """
    if program:
        listen(name)
    try:
        code = work()
        if sys.stdout is not None:
            sys.stdout.flush()
        if program:
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)
    except KeyboardInterrupt:
        code = interrupted(name, program)
    except Exception as error:
        if Heard.asked:  # an interrupted import can raise almost anything
            code = interrupted(name, program)
        elif isinstance(error, OSError):
            code = unwritten(name, error)
        else:
            raise
    exec("")  # forgets an interrupt that came inside another `exec`; `python -m` would die of it instead of this code
    sys.exit(code)


def unwritten(name: str, error: OSError) -> int:
    """The exit code after an error of the output; other errors are raised again."""
    if not isinstance(error, BrokenPipeError) and error.errno not in FULL:
        raise error
    with contextlib.suppress(OSError, ValueError):  # what is still to be printed would raise the error once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if isinstance(error, BrokenPipeError):
        return UNREAD
    return complain(name, f"output: cannot be written: {os.strerror(error.errno or 0)}", NO_ROOM)


def complain(name: str, line: str, code: int) -> int:
    """Print one line on standard error and return the exit code."""
    with contextlib.suppress(OSError):
        print(f"{name}: {' '.join(line.split())}", file=sys.stderr, flush=True)
    return code


def interrupted(name: str, program: bool) -> int:
    """Say so; a program is ended at once, because a thread inside XLA would abort a normal exit."""
    if program:
        leave()
    return complain(name, "interrupted", INTERRUPTED)


def stop(number: int, frame: FrameType | None) -> None:
    """The handler of both signals."""
    Heard.asked = True
    if is_writing(frame):
        raise KeyboardInterrupt
    leave()


def is_writing(frame: FrameType | None) -> bool:
    """Whether a function is at work that would have to tidy up."""
    while frame is not None:
        file = frame.f_code.co_filename
        if frame.f_code.co_name != "<module>" and any(f"iclflow/{part}" in file for part in WRITERS):
            return True
        frame = frame.f_back
    return False


def leave() -> NoReturn:
    """Say so and end the process, past Python's buffers, which may be in use; the cursor is shown again."""
    shown = "\r\x1b[K\x1b[?25h" if os.isatty(2) else ""
    with contextlib.suppress(OSError):
        os.write(2, f"{shown}{Heard.name}: interrupted\n".encode())
    os._exit(INTERRUPTED)


def listen(name: str) -> None:
    """Hear both signals, unless they are ignored, and end the process soon after one even if its exception is lost."""
    Heard.name = name
    heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in heard:
        signal.signal(number, stop)
    if heard:
        ear, mouth = os.pipe()
        os.set_blocking(mouth, False)
        signal.set_wakeup_fd(mouth, warn_on_full_buffer=False)
        threading.Thread(target=insist, args=(ear,), daemon=True).start()


def insist(ear: int) -> None:
    """Wait for a signal of ours and end the process some time after it; a sweep handles its signals itself."""
    while os.read(ear, 1)[0] not in SIGNALS or signal.getsignal(signal.SIGINT) not in (stop, signal.SIG_IGN):
        pass
    threading.Event().wait(GRACE)
    leave()
