"""What the processes of a pool do in tests: they import it from here."""

import os
import time

from iclflow.errors import BadInput


class Untransferable(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def refuse_to_travel():
    raise Untransferable("two", "three")


def slow_square(number):
    time.sleep(0.05)
    return number**2


def process_number():
    time.sleep(0.05)
    return os.getpid()


def complain():
    raise BadInput("field: must be more")
