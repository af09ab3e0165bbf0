"""Files shipped beside the code: the grammar, cluster descriptions, tiny models.

A wheel carries them under `rpeg/_data/`, a checkout has them at its root.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent
_DATA = _PACKAGE / "_data"
_ROOT = _DATA if _DATA.is_dir() else _PACKAGE.parent


def found(folder: Path, relative: str) -> Path:
    """The path that a source without a scheme means in a file of `folder`, there or not: a path
    from there, or a shipped model.
    """
    path, shipped = folder / relative, _ROOT / relative
    if relative.startswith("models/") and shipped.exists() and not path.exists():
        return shipped
    return path


def resource(relative: str) -> Path:
    """The path of a shipped file or folder, such as `grammar/rpeg.lark` or `models`.

    Raises:
        FileNotFoundError: this installation does not hold it.
    """
    path = _ROOT / relative
    if not path.exists():
        raise FileNotFoundError(f"this installation of rpeg lacks {relative}: install it again")
    return path
