"""The subcommands of `rpeg`, one per module."""
