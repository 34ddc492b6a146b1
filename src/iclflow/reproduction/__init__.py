"""The whole paper into one directory: figures and claims, each made once, and a page that shows them.

`work` makes one piece, `folder` keeps it and knows whether it is still true, `runner` makes what is missing, `report`
writes the page.
"""

from iclflow.reproduction.runner import reproduce

__all__ = ["reproduce"]
