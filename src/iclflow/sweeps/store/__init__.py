"""A sweep on disk: the protocol of its files, and how they are checked."""
