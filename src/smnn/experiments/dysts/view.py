"""Tables, figure and report: those of the experiment `discovery-bench`."""

from smnn.experiments.discovery_bench.view import figures as figures
from smnn.experiments.discovery_bench.view import report as report
from smnn.experiments.discovery_bench.view import summary as summary
from smnn.experiments.discovery_bench.view import tables as tables
from smnn.experiments.discovery_bench.view import terminal_tables as terminal_tables
