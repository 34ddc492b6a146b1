"""A page in the browser, served on this machine only: move the controls and watch the loss curve change.

`state` (the values of the controls, clamped) -> `jobs` (theory and simulation, two tasks in the background) ->
`theory_view`, `detail` and `sentence` (what theory predicts, what a run does, and both in words, from its `Comparison`
and `Probe`) -> `pictures` (plotly) -> `page` (layout), `notes`, `callbacks` and `in_browser`; `server` refuses foreign
requests. Nothing is computed here that the command line does not compute as well.
"""
