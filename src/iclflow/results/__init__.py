"""What training leaves: a `Run` in memory and on disk, and files of weights."""
