"""Operations whose bodies see no value from around them."""

from xdsl.ir import Operation
from xdsl.traits import IsolatedFromAbove
from xdsl.utils.exceptions import VerifyException


class Isolated(IsolatedFromAbove):
    """What xDSL asks, and a message that names the value. xDSL's prints the operation, which may be
    one that its own definition has yet to refuse, and that cannot be printed.
    """

    def verify(self, op: Operation) -> None:
        """Raises VerifyException."""
        for child in op.walk():
            for value in child.operands if child is not op else ():
                if value.owner is op or not op.is_ancestor(value.owner):
                    name = value.name_hint or "a value"
                    raise VerifyException(
                        f"{child.name} uses %{name}, which is defined outside of this {op.name}"
                    )
