"""From a task graph and what it was priced with to a simulated run."""

from __future__ import annotations

from rpeg.cost.period.graph import TaskGraph
from rpeg.cost.profiles.setting import Setting
from rpeg.cost.simulation.events import simulate
from rpeg.cost.simulation.links import network_of
from rpeg.cost.simulation.run import Run
from rpeg.cost.simulation.varying import draws_of

WARM = 25
"""Steps that fill a pipeline before those that count: more than any window or buffer holds."""


def simulated(graph: TaskGraph, setting: Setting, steps: int, seed: int) -> Run:
    """So many steps of a pipeline, after those that fill it.

    Raises:
        Deadlock: tasks of one step wait for each other in a circle.
    """
    network = network_of(graph, setting.pools, setting.machine.nic.reached)
    return simulate(graph, steps, draws_of(graph, setting, seed), network, warm=WARM)
