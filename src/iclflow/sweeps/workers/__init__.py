"""Who computes the runs of a sweep, and what a worker does."""
