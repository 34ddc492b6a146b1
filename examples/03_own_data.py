# %% [markdown]
# Your own sequences: tokens with heavy tails, which no theory here was derived for. The moments are computed from them,
# and the staircase is still predicted from the initial weights.

# %%
import numpy as np

import iclflow as icl


def main(path="own_data.npz"):
    rng = np.random.default_rng(0)
    x = rng.standard_t(df=5, size=(20_000, 21, 3)) * np.sqrt([0.5, 0.3, 0.2]) * np.sqrt(3 / 5)
    w = rng.standard_normal((20_000, 3))
    sequences = np.concatenate([x, np.einsum("pnd,pd->pn", x, w)[..., None]], axis=2)
    np.savez(path, sequences=sequences)
    run = icl.train(data=path, model=icl.Separate(heads=4), init=3e-3, engine="moments", freeze_vectors=True)
    found = icl.compare(run)
    print(found)
    return found


# %%
if __name__ == "__main__":
    main()
