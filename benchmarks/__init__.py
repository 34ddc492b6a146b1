"""How fast the package is, against baselines measured in the same run: `python -m benchmarks`.

One file an idea: `all_positions` is the baseline, `child` a training in a process of its own, `warm_step` the
package's own step; every file named in `__main__.PARTS` measures one claim.
"""
