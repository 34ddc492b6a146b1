"""Grids of runs that survive crashes: what to run, where results are kept, who computes them, how they are read back.

| file | what it holds |
| --- | --- |
| `sweep_file` | a grid from a TOML file, every name and value of which is checked |
| `grid` | base settings, axes and seeds as a numbered list of experiments |
| `estimate` | the memory and disk space that a sweep takes |
| `parts` | one of n parts of a sweep, for arrays of jobs |
| `sweep` | the session: hands out the missing runs, counts them and reports progress |
| `columns` | the names of what is kept of every run |
| `quantities` | the numbers kept of a run: drop times, plateau losses, components, a thinned curve |
| `results` | all runs as one labelled dataset |
| `select` | the runs behind each line of a figure |
| `forecast` | what theory predicts for the runs of a sweep |
| `load` | opens a run or a sweep |
| `store/protocol` | the files of a sweep: one chunk per run, committed by a manifest that is written last |
| `store/check` | finds damaged and missing runs, and computes only these again |
| `workers/workers` | who computes: this process, processes on this machine, or a cluster |
| `workers/cluster` | the user's dask scheduler, and jobs of Slurm that die before they connect |
| `workers/tasks` | what a worker does: computes one run and commits it |
| `workers/sharing` | moments and sequences that runs on the same data share |
| `workers/signals` | Ctrl-C and SIGTERM stop a session cleanly |

JAX and dask are imported only after every grid point has been checked.
"""
