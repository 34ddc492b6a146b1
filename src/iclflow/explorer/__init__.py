"""A page in the browser, served on this machine only: move the controls and watch the loss curve change.

`state` (the values of the controls, clamped) -> `theory_view` (at once) and `jobs` (simulation, seed by seed) ->
`pictures` (plotly) -> `page` (layout) and `callbacks`; `server` refuses foreign requests. Nothing is computed here that
the command line does not compute as well.
"""
