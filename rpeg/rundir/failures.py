"""Failures of a run that are met without torch too; `rpeg.runtime.errors` has the others."""

from __future__ import annotations


class RuntimeFailure(Exception):
    """Something that the user can mend; the message says how."""


class RunFolderFailure(RuntimeFailure):
    """The run folder is in use, or holds another run."""


class CheckpointFailure(RuntimeFailure):
    """A checkpoint cannot be read, or does not fit this program."""


class DataFailure(RuntimeFailure):
    """A data set's source or one of its rows cannot be used."""


class ModelFailure(RuntimeFailure):
    """A model's source, configuration or tokenizer cannot be used."""
