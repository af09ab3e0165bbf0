"""An environment: a turn of the policy ends with a digit, which is its guess."""


class Game:
    """One sample's game: the answer of its row is the digit to guess."""

    def __init__(self, row):
        self.digit, self.nearest = int(row.answer), 10

    def step(self, turn):
        """What the policy hears after a turn; None once it has guessed right."""
        guess = int(turn[-1]) if turn[-1:].isdecimal() else None
        if guess is None:
            return "\nA digit, please: "
        self.nearest = min(self.nearest, abs(guess - self.digit))
        if guess == self.digit:
            return None
        return "\nHigher: " if guess < self.digit else "\nLower: "

    def reward(self):
        """How near the best guess came: 1 if it was right."""
        return 1 - self.nearest / 10
