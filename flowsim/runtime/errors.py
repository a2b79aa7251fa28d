"""The errors that a message explains in full."""


class UserError(Exception):
    """What a user gave, or has in files and folders, cannot be used: the message says where, why, and what to write.

    The command line prints it without a traceback, and ends with exit code 2.
    """
