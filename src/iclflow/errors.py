"""What can go wrong, one class per kind, each with the exit code that the command line gives it."""

__all__ = ["BadInput", "DamagedStore", "IclflowError", "NoRoom", "NoTheory"]


class IclflowError(Exception):
    """A run failed, diverged, or a claim does not hold."""

    exit_code = 1


class BadInput(IclflowError, ValueError):
    """The caller asked for something that cannot be; the message names field, value and what is allowed."""

    exit_code = 2


class NoTheory(BadInput):
    """No theory predicts the loss curve of this model, task or optimiser; its levels may still be known."""


class DamagedStore(IclflowError):
    """A file or directory is not what its name promises: truncated, altered, or of another schema."""

    exit_code = 3


class NoRoom(IclflowError):
    """The work would not fit in memory or on the disk."""

    exit_code = 4
