"""Grids of runs that survive crashes: what to run, where results are kept, who computes them, how they are read back.

| file | what it holds |
| --- | --- |
| `sweep_file` | a grid from a TOML file, every name and value of which is checked |
| `grid` | base settings, axes and seeds as a numbered list of experiments |
| `estimate` | the number of runs, and the time, memory and disk space that they take |
| `sweep` | the session: hands out the missing runs, counts them and reports progress |
| `columns` | the names of what is kept of every run |
| `quantities` | the numbers kept of a run: drop times, plateau losses, components, a thinned curve |
| `results` | all runs as one labelled dataset |
| `select` | the runs behind each line of a figure |
| `forecast` | what theory predicts for the runs of a sweep |
| `load` | opens a run or a sweep |
| `store/protocol` | the files of a sweep: one chunk per run, committed by a manifest that is written last |
| `store/check` | finds damaged and missing runs, and computes only these again |
| `workers/workers` | who computes: this process, local processes, or a cluster |
| `workers/cluster` | connects to a dask scheduler, our own or the user's |
| `workers/tasks` | what a worker does: computes one run and commits it |
| `workers/sharing` | moments and sequences that runs on the same data share |
| `workers/blocks` | how large samples are split into blocks |
| `workers/map_reduce` | moments of huge samples, summed in fixed blocks by any number of workers |
| `workers/signals` | Ctrl-C and SIGTERM stop a session cleanly |

JAX and dask are imported only after every grid point has been checked.
"""
