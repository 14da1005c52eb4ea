"""The core operation: solving batches of linear ODEs as one least-squares problem."""
