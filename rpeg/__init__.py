"""RPEG: training pipelines of reasoning language models as graphs that a compiler can see."""

__version__ = "0.1.0"
