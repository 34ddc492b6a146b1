"""From a loss curve to what made it, and from a wanted staircase to a task.

`observing` reads the curve, `finding` counts its drops and starts the fit, `fitting` fits the staircase of theory,
`testing` asks whether the theory applies; `drop` holds the closed form of one drop.
"""
