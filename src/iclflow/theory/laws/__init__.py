"""Closed laws and facts, one a file: optimisers, the edge of stability, limits, few tasks, power-law spectra."""
