"""What theory predicts of a training run, from its task, model, data and initial weights: `predict` and its parts."""
