"""A page on this machine: turn the knobs and watch the staircase.

`state` (what the controls say, clamped) -> `theory_view` (at once) and `jobs` (simulation, seed by seed) -> `pictures`
(plotly) -> `page` (layout) and `callbacks`; `server` guards the door. No science here: every number comes from the
functions that the command line calls.
"""
