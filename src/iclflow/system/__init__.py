"""The machine: atomic writes, digests, locks, cores, memory, precision, progress, thinning. No science here."""
