"""The original Mechanistic Neural Network solver, as published and in linear time."""

from smnn.baselines._mnn import MNNSolution as MNNSolution
from smnn.baselines._mnn import mnn_dense as mnn_dense
from smnn.baselines._mnn import mnn_exact as mnn_exact
from smnn.baselines._mnn import mnn_sparse as mnn_sparse

__all__ = ["MNNSolution", "mnn_dense", "mnn_exact", "mnn_sparse"]
