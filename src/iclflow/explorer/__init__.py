"""A page in the browser, served on this machine only: move the controls and watch the loss curve change.

`state` (the values of the controls, clamped) -> `theory_view` and `jobs` (theory and simulation, in the background) ->
`detail` and `sentence` (what a run does, and in words) -> `pictures` (plotly) -> `page` (layout), `notes`, `callbacks`
and `in_browser`; `server` refuses foreign requests. Nothing is computed here that the command line does not compute as
well.
"""
