"""How a kind of something is found by its name: the built-in ones, and those of a user's own modules."""

from .registry import Registry as Registry, UnknownKindError as UnknownKindError
