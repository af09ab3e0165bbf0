"""From L3 to text: generated programs and the package around them. No decisions are made here."""
