"""What only the command line does. Imported by `__main__`, never by a notebook."""


class CommandError(Exception):
    """A command can't go on. The message is all that the learner gets to see: what is wrong and what to do."""
