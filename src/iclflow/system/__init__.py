"""The machine: atomic writes, locks, cores, memory, precision, progress. No science here."""
