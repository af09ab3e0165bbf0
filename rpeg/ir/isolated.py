"""Operations whose bodies see no value from around them."""

from xdsl.ir import Operation
from xdsl.traits import IsolatedFromAbove
from xdsl.utils.exceptions import VerifyException


class Isolated(IsolatedFromAbove):
    """xDSL's check, with a message that names the value. xDSL's own message prints the operation,
    which may not be verified yet and then cannot be printed.
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
