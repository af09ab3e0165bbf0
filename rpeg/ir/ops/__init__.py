"""Operations of the `rpeg` dialect, one module per family."""
