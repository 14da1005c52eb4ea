"""Training of any task, on one or many devices, with bit-exact resuming."""

from smnn.training._checkpoint import load_task, load_weights
from smnn.training._config import TrainConfig
from smnn.training._damping import Damping, oscillations
from smnn.training._data import Data, SeriesWindows
from smnn.training._errors import (
    CheckpointError,
    ConfigError,
    Interrupted,
    NonFiniteError,
    TrainingError,
)
from smnn.training._evaluate import Evaluation, evaluate
from smnn.training._graphed import GraphedStep
from smnn.training._processes import is_main_process
from smnn.training._run import FitResult, fit
from smnn.training._task import (
    RunSpec,
    Task,
    TaskEntry,
    import_tasks,
    register_task,
    registered_tasks,
)

__all__ = [
    "CheckpointError", "ConfigError", "Damping", "Data", "Evaluation", "FitResult", "GraphedStep",
    "Interrupted", "NonFiniteError", "RunSpec", "SeriesWindows", "Task", "TaskEntry", "TrainConfig",
    "TrainingError", "evaluate", "fit", "import_tasks", "is_main_process", "load_task",
    "load_weights", "oscillations", "register_task", "registered_tasks",
]  # fmt: skip
