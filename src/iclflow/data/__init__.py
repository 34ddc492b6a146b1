"""The task, as data: covariances, sequences, and the moments that training needs of them."""
