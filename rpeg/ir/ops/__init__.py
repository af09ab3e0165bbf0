"""Operations of the `rpeg` dialect, one family a module."""
