"""Loaded by a test's dask workers: makes one run of the tiny sweep kill whoever computes it."""

import os

from iclflow.sweeps.workers import tasks as work

if not hasattr(work, "harmless"):  # a worker may load this more than once
    work.harmless = work.compute


def compute(experiment, *arguments):
    training = experiment.training
    if (training.init, training.samples, training.seed) == (0.2, 40, 1):
        os._exit(11)
    return work.harmless(experiment, *arguments)


work.compute = compute
