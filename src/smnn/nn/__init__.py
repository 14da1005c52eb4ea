"""Mechanistic networks: encoders, heads that output linear ODEs, the solver, and decoders.

Features are in the last axis, `(*B, F)`, for any batch `*B`. All classes are `torch.nn.Module`s.
"""

from smnn.nn._decoders import StateDecoder, TakeOrder
from smnn.nn._encoders import MLP, ResNet1d, SpectralInput
from smnn.nn._entries import OBSERVED, Between, Free, Positive
from smnn.nn._heads import Coefficients, InitialValues, RightHandSide
from smnn.nn._layer import MechanisticLayer
from smnn.nn._model import MechanisticModel, MechanisticOutput, ODEHeads
from smnn.nn._ode import LinearODE
from smnn.nn._readout import ODEReadout, read_out
from smnn.nn._steps import Share, Steps

__all__ = [
    "MLP", "OBSERVED", "Between", "Coefficients", "Free", "InitialValues", "LinearODE",
    "MechanisticLayer", "MechanisticModel", "MechanisticOutput", "ODEHeads", "ODEReadout",
    "Positive", "ResNet1d", "RightHandSide", "Share", "SpectralInput", "StateDecoder", "Steps",
    "TakeOrder", "read_out",
]  # fmt: skip
