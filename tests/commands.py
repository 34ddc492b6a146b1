"""Commands called as a shell would, in this process."""

import pytest

from iclflow.cli import main


def call(capsys, *arguments):
    """Exit code, standard output and standard error."""
    with pytest.raises(SystemExit) as left:
        main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return left.value.code, out, err
