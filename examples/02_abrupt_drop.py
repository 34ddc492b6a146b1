# %% [markdown]
# Merged key and query: one plateau, one drop. The larger the initial weights the earlier it comes, by the logarithm.

# %%
import numpy as np

import iclflow as icl


def main(path="abrupt_drop.csv"):
    task, rows = icl.Task(dim=4, context=31, spectrum="power:1"), []
    for init in (1e-2, 1e-3, 1e-4, 1e-5):
        run = icl.train(task, icl.Merged(heads=8), init=init)
        drop = icl.compare(run).drops[0]
        rows.append((init, drop.observed_time, drop.predicted_time))
        print(f"init {init:g}: drop at t/tau = {drop.observed_time:.3f}, predicted {drop.predicted_time:.3f}")
    np.savetxt(path, rows, delimiter=",", header="init,observed,predicted", comments="")
    return rows


# %%
if __name__ == "__main__":
    main()
