"""Published interfaces of MNN (mech-nn) and S-MNN (ScalableMNN) on the solvers of `smnn`.

`ode_forward` is the function of ScalableMNN; `ODEINDLayer`, `ODESYSLayer`, `ODEConfig` and
`SolverType` are those of mech-nn. `install()`, or `python -m smnn.compat script.py`, lets programs
written for mech-nn import them under the names they know.
"""

from smnn.compat._config import ODEConfig, SolverType
from smnn.compat._install import install
from smnn.compat._layers import ODEINDLayer, ODESYSLayer
from smnn.compat._ode_forward import ode_forward

__all__ = ["ODEConfig", "ODEINDLayer", "ODESYSLayer", "SolverType", "install", "ode_forward"]
