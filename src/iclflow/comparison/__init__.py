"""Theory beside simulation: predict loss curves, compare runs and curves with them, find plateaus and drops.

Importing this package alone imports nothing heavy.
"""
