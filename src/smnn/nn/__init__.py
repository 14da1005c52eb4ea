"""Mechanistic networks: encoders, heads that output linear ODEs, the solver, and decoders.

Features are in the last axis, `(*B, F)`, for any batch `*B`. All classes are `torch.nn.Module`s.
"""

from smnn.nn._decoders import StateDecoder as StateDecoder
from smnn.nn._decoders import TakeOrder as TakeOrder
from smnn.nn._encoders import MLP as MLP
from smnn.nn._encoders import ResNet1d as ResNet1d
from smnn.nn._encoders import SpectralInput as SpectralInput
from smnn.nn._entries import OBSERVED as OBSERVED
from smnn.nn._entries import Between as Between
from smnn.nn._entries import Free as Free
from smnn.nn._entries import Positive as Positive
from smnn.nn._heads import Coefficients as Coefficients
from smnn.nn._heads import InitialValues as InitialValues
from smnn.nn._heads import RightHandSide as RightHandSide
from smnn.nn._layer import MechanisticLayer as MechanisticLayer
from smnn.nn._model import MechanisticModel as MechanisticModel
from smnn.nn._model import MechanisticOutput as MechanisticOutput
from smnn.nn._model import ODEHeads as ODEHeads
from smnn.nn._ode import LinearODE as LinearODE
from smnn.nn._readout import ODEReadout as ODEReadout
from smnn.nn._readout import read_out as read_out
from smnn.nn._steps import Share as Share
from smnn.nn._steps import Steps as Steps

__all__ = [
    "MLP",
    "OBSERVED",
    "Between",
    "Coefficients",
    "Free",
    "InitialValues",
    "LinearODE",
    "MechanisticLayer",
    "MechanisticModel",
    "MechanisticOutput",
    "ODEHeads",
    "ODEReadout",
    "Positive",
    "ResNet1d",
    "RightHandSide",
    "Share",
    "SpectralInput",
    "StateDecoder",
    "Steps",
    "TakeOrder",
    "read_out",
]
