"""From `.rpeg` text to IR."""
