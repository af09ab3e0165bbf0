"""Models as files: where they come from, what shape they have, how they are saved and opened."""
