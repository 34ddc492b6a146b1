"""The page of the command line: what `--help` says of every command."""

import re
from pathlib import Path

from pages import write


def write_commands(target: Path) -> None:
    from iclflow.cli import app

    text = app.generate_docs(output_format="markdown")
    text = re.sub(r"^## Table of Contents\n.*?(?=^\*\*Commands)", "", text, flags=re.MULTILINE | re.DOTALL)
    text = text.replace("# iclflow", "# Commands", 1)
    text = re.sub(r"^(Example: )(iclflow .*)$", r"```bash\n\2\n```", text, flags=re.MULTILINE)
    text = text.replace("```console", "```bash")
    write(target / "commands.md", text)
