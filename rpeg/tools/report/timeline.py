"""When the tasks of one step run, and on what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from rpeg.tools.report.axes import Scale, across
from rpeg.tools.report.colours import NONE, legend, stage_colours
from rpeg.tools.report.figures import Figure
from rpeg.tools.report.markup import CHARACTER, FONT, drawing, hint, short, tag
from rpeg.tools.report.quantities import seconds

WIDTH, LEFT, RIGHT, TOP = 760.0, 138.0, 14.0, 22.0
LANE, BAR = 24.0, 18.0
LEAST = 0.6
"""Width of the shortest task that is seen."""


@dataclass(frozen=True)
class Lane:
    """A row of the drawing: tasks of one resource, one after another."""

    resource: str | None
    first: bool
    """Of the rows of its resource."""
    tasks: Sequence[Figure]


def lanes(tasks: Iterable[Figure]) -> Iterator[Lane]:
    """Rows by resource, as many as it has tasks at once; what takes no resource comes last, and
    what takes no time nowhere.
    """
    tasks = [task for task in tasks if task["end_s"].number > task["start_s"].number]
    names = dict.fromkeys(task["resource"].value for task in tasks)
    for name in sorted(names, key=lambda name: name is None):
        mine = [task for task in tasks if task["resource"].value == name]
        for k, row in enumerate(_rows(mine)):
            yield Lane(name, k == 0, row)


def _rows(tasks: Sequence[Figure]) -> list[list[Figure]]:
    """Each task in the first row that is free when it starts."""
    rows: list[list[Figure]] = []
    for task in sorted(tasks, key=lambda task: task["start_s"].number):
        start = task["start_s"].number
        free = (row for row in rows if row[-1]["end_s"].number <= start + 1e-9)
        row = next(free, None)
        if row is None:
            rows.append([task])
        else:
            row.append(task)
    return rows


def draw_timeline(section: Element, estimate: Figure) -> None:
    """Draws every task of the step as a bar, from the step's start to its last end."""
    _Timeline(estimate).onto(section)
    colours = stage_colours(estimate)
    legend(section, {name: colour for name, colour in colours.items() if colour != NONE})
    tag(section, "p", "Framed: on the critical cycle.", class_="caption")


class _Timeline:
    def __init__(self, estimate: Figure) -> None:
        self.rows = list(lanes(estimate["tasks"]))
        self.period = estimate["period_s"]
        self.colours = stage_colours(estimate)
        self.critical = set(estimate["critical_cycle"].value)
        end = max(task["end_s"].number for task in estimate["tasks"])
        self.scale = Scale(0.0, max(end, self.period.number), LEFT, WIDTH - RIGHT)
        self.bottom = TOP + len(self.rows) * LANE

    def onto(self, section: Element) -> None:
        label = "when each task of a step runs, by resource"
        svg = drawing(section, WIDTH, self.bottom + 36, label)
        across(svg, self.scale, TOP, self.bottom, "seconds from the step's start")
        for k, lane in enumerate(self.rows):
            self._lane(svg, lane, TOP + k * LANE)
        self._period(svg)

    def _lane(self, svg: Element, lane: Lane, top: float) -> None:
        if lane.first:
            name = lane.resource or "no resource"
            tag(svg, "text", short(name, LEFT - 12), x=4, y=top + 15, class_="name")
            tag(svg, "line", x1=0, x2=WIDTH, y1=top, y2=top, class_="rule")
        starts = [self.scale(task["start_s"].number) for task in lane.tasks]
        free = LEFT
        for task, until in zip(lane.tasks, [*starts[1:], WIDTH], strict=True):
            self._bar(svg, task, top + (LANE - BAR) / 2)
            free = self._label(svg, task, top + 16, (free, until))

    def _bar(self, svg: Element, task: Figure, top: float) -> None:
        start, end = task["start_s"].number, task["end_s"].number
        x, width = self.scale(start), max(self.scale(end) - self.scale(start), LEAST)
        kind = f"bar {self.colours.get(task['stage'].value, NONE)}"
        if task["task"].value in self.critical:
            kind += " critical"
        bar = tag(svg, "rect", x=x, y=top, width=width, height=BAR, class_=kind)
        bar.attrib.update(task.attributes)
        hint(bar, f"{task['task'].text}: {seconds(start)} to {seconds(end)}")

    def _label(self, svg: Element, task: Figure, y: float, free: tuple[float, float]) -> float:
        """Names a task in its bar, or else after or before it where its lane is free for as long as
        the name; from where on the lane is free then.
        """
        text = task["stage"].value or task["task"].text
        start, end = self.scale(task["start_s"].number), self.scale(task["end_s"].number)
        room = len(text) * CHARACTER * FONT + 8
        if room <= end - start:
            tag(svg, "text", text, x=(start + end) / 2, y=y, class_="name on middle")
        elif room <= free[1] - end:
            tag(svg, "text", text, x=end + 4, y=y, class_="name")
            return end + room
        elif room <= start - free[0]:
            tag(svg, "text", text, x=start - 4, y=y, class_="name end")
        return end

    def _period(self, svg: Element) -> None:
        """The mark from which on the next step's tasks repeat these."""
        x = self.scale(self.period.number)
        tag(svg, "line", x1=x, x2=x, y1=TOP - 6, y2=self.bottom, class_="mark")
        label = tag(svg, "text", x=x + 2, y=12, class_="small end")
        label.text = f"period {seconds(self.period.number)}"
        label.attrib.update(self.period.attributes)
