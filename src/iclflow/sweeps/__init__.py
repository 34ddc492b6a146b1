"""Grids of runs that survive anything: what to run, where it is kept, who computes it, and how it is read back.

| file | idea |
| --- | --- |
| `sweep_file` | a TOML file, checked word by word |
| `grid` | base settings, axes and seeds as a numbered list of experiments |
| `estimate` | how many runs, how long, how much memory and disk |
| `store` | a directory with one chunk a run, committed by a manifest that is written last |
| `sealed` | small files that know whether they are whole |
| `lock` | one writer at a time; the kernel takes the lock back from the dead |
| `work` | one run: compute it and commit it |
| `quantities` | the numbers kept of a run: drop times, plateau losses, components, a thinned curve |
| `map_reduce` | moments of huge samples, in fixed blocks that any number of workers may share |
| `cluster` | reaching a dask scheduler, our own or the user's |
| `crew` | who computes: this process, local processes, or a cluster |
| `runner` | the session: what is missing is handed out, counted, and told |
| `gathered` | all runs as one labelled dataset |
| `checking` | find what is damaged, redo only that |

Nothing here imports JAX or dask before every grid point has been checked.
"""
