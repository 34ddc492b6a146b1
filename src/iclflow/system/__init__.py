"""The machine: atomic writes, digests, locks, cores, memory, precision, progress, thinning, garbage. No science here."""
