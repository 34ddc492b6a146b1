"""The data of the task: covariances, sequences, and the moments of them that training needs."""
