"""Training of any task, on one or many devices, with bit-exact resuming."""

from smnn.training._checkpoint import load_task as load_task
from smnn.training._checkpoint import load_weights as load_weights
from smnn.training._config import TrainConfig as TrainConfig
from smnn.training._damping import Damping as Damping
from smnn.training._damping import oscillations as oscillations
from smnn.training._data import Data as Data
from smnn.training._data import SeriesWindows as SeriesWindows
from smnn.training._errors import CheckpointError as CheckpointError
from smnn.training._errors import ConfigError as ConfigError
from smnn.training._errors import Interrupted as Interrupted
from smnn.training._errors import NonFiniteError as NonFiniteError
from smnn.training._errors import TrainingError as TrainingError
from smnn.training._evaluate import Evaluation as Evaluation
from smnn.training._evaluate import evaluate as evaluate
from smnn.training._graphed import GraphedStep as GraphedStep
from smnn.training._processes import is_main_process as is_main_process
from smnn.training._run import FitResult as FitResult
from smnn.training._run import fit as fit
from smnn.training._task import RunSpec as RunSpec
from smnn.training._task import Task as Task
from smnn.training._task import TaskEntry as TaskEntry
from smnn.training._task import import_tasks as import_tasks
from smnn.training._task import register_task as register_task
from smnn.training._task import registered_tasks as registered_tasks

__all__ = [
    "CheckpointError",
    "ConfigError",
    "Damping",
    "Data",
    "Evaluation",
    "FitResult",
    "GraphedStep",
    "Interrupted",
    "NonFiniteError",
    "RunSpec",
    "SeriesWindows",
    "Task",
    "TaskEntry",
    "TrainConfig",
    "TrainingError",
    "evaluate",
    "fit",
    "import_tasks",
    "is_main_process",
    "load_task",
    "load_weights",
    "oscillations",
    "register_task",
    "registered_tasks",
]
