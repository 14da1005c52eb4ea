"""The original Mechanistic Neural Network solver, as published and in linear time."""

from smnn.baselines._mnn import MNNSolution, mnn_dense, mnn_exact, mnn_sparse

__all__ = ["MNNSolution", "mnn_dense", "mnn_exact", "mnn_sparse"]
