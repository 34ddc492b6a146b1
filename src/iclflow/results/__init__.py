"""The results of training: a `Run` in memory and on disk, and files of weights."""
