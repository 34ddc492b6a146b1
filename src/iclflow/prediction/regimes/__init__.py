"""How theory predicts one kind of model each: a staircase, a single drop, a mixture of tasks, several layers."""
