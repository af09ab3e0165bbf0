"""The subcommands of `rpeg`, one a module."""
