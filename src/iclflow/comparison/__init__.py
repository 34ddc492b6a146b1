"""Theory beside what happened: predict a curve, compare runs and curves with it, find plateaus and drops.

Nothing heavy is imported until it is asked for.
"""
